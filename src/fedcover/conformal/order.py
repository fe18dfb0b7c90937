"""Order statistics of float32 scores, in exact arithmetic (docs/guarantee.md).

One is found among clients that send nothing but counts (:func:`histogram_client`, :func:`search`),
or for many re-splits at once (:class:`OrderStatistics`); both give the same bits.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcover.conformal.checks import check_scores
from fedcover.conformal.protocol import Message, Server
from fedcover.conformal.targets import Target

_SIGN = np.uint32(0x8000_0000)
_ALL = np.uint32(0xFFFF_FFFF)
_BYTES = 4  # of a float32, hence the number of rounds
BINS = 256


def order_key(scores: ArrayLike) -> NDArray[np.uint32]:
    """Map float32 scores to uint32 so that the keys are ordered as the scores are.

    A positive number's bits grow with it, so only its sign bit is set; a negative one's shrink, so
    all are flipped. −0.0 counts as +0.0; ±inf have keys; NaN is refused.
    """
    bits = check_scores(scores).view(np.uint32)
    return bits ^ np.where(bits >= _SIGN, _ALL, _SIGN)


def from_order_key(keys: ArrayLike) -> NDArray[np.float32]:
    """Map keys back to the float32 scores they stand for; the inverse of :func:`order_key`."""
    bits = np.asarray(keys, dtype=np.uint32)
    return (bits ^ np.where(bits >= _SIGN, _SIGN, _ALL)).view(np.float32)


def histogram_client(scores: ArrayLike, query: Message) -> Message:
    """Count the next byte of the scores whose key begins with the agreed prefix.

    ``query`` has ``depth`` (bytes agreed so far) and ``prefix`` (those bytes as an integer).
    Nothing but the 256 counts ever leaves the client.
    """
    keys = order_key(scores).ravel()
    depth, prefix = int(query["depth"][0]), np.uint32(query["prefix"][0])
    shift = np.uint32(8 * (_BYTES - 1 - depth))
    if depth > 0:
        keys = keys[keys >> (shift + np.uint32(8)) == prefix]
    next_byte = (keys >> shift) & np.uint32(BINS - 1)
    return {"counts": np.bincount(next_byte, minlength=BINS).astype(np.int64)}


def search(target: Callable[[list[int]], Target]) -> Server[tuple[float, list[int]]]:
    """Find the smallest score q with Σ_k w_k · #{scores of client k ≤ q} ≥ t, in four rounds.

    ``target`` gives w and t once every client's number of scores n is known. The weighed counts add
    up to one histogram; the bin that reaches t gives the next byte, and after four bytes the prefix
    *is* the answer. Where all scores together do not reach t, it is +inf, and nothing further is
    asked. A client that does not answer has no part in it. Returns q and n.
    """
    prefix = 0
    for depth in range(_BYTES):
        replies = yield {"depth": np.array([depth]), "prefix": np.array([prefix], np.uint32)}
        counts = np.array([reply["counts"] for reply in replies if reply]).reshape(-1, BINS)
        if depth == 0:
            n: list[int] = counts.sum(axis=1).tolist()
            aim = target(n)
            if not aim.reached(n):
                return float("inf"), n
            remaining, large = aim.reach, aim.total(n) >= 2**63
            weights = np.array(aim.weights, dtype=object if large else np.int64)
        reached = np.cumsum(weights @ counts)
        # Where somebody was lost on the way, the rest may not reach t: then the last byte.
        byte = min(int(np.searchsorted(reached, remaining)), BINS - 1)
        if byte > 0:
            remaining -= reached[byte - 1]
        prefix = prefix << 8 | byte
    return float(from_order_key(prefix)), n


def over(make: Callable[[int], Sequence[int]], n: NDArray[np.int64]) -> NDArray[np.int64]:
    """What ``make`` gives of every entry of an array, worked out once for each value: its numbers
    are the first axis."""
    distinct, inverse = np.unique(n, return_inverse=True)
    made = np.array([make(int(value)) for value in distinct], dtype=np.int64)
    return made.T[:, inverse].reshape(-1, *n.shape)


class OrderStatistics:
    """Order statistics of the marked scores, by row of the mask and by group.

    The scores are sorted once, by group and then by size; a row's marked columns are then each
    group's scores in order, and a rank is an index.
    """

    def __init__(
        self,
        scores: NDArray[np.float32],
        groups: NDArray[np.intp],
        mask: NDArray[np.bool_],
        n_groups: int,
    ) -> None:
        order = np.lexsort((scores, groups))
        scores, groups = scores[order], groups[order]
        self.counts = np.zeros((len(mask), n_groups), dtype=np.int64)
        parts = [np.empty(0, np.float32)]
        # Row by row: the places of all marks at once would take ten times the mask's memory.
        for row, counts in zip(mask, self.counts, strict=True):
            marked = row[order]
            parts.append(scores[marked])
            counts[:] = np.bincount(groups[marked], minlength=n_groups)
        ends = np.cumsum(self.counts).reshape(self.counts.shape)
        self._starts = ends - self.counts
        self._sorted = np.concatenate(parts)

    def at(self, ranks: NDArray[np.int64]) -> NDArray[np.float32]:
        """The ranks-th smallest (from 1) of every row and group, the last axes of the ranks; +inf
        above the count."""
        inside = (ranks >= 1) & (ranks <= self.counts)
        result = np.full(ranks.shape, np.inf, dtype=np.float32)
        result[inside] = self._sorted[(self._starts + ranks - 1)[inside]]
        return result
