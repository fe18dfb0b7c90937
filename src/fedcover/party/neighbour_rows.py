r"""Which sums over far ends a party asks for: the *rows*, and which of its nodes gets which.

A sum has ``least`` far ends or more. A node with as many has a row of its own. Nodes with fewer
share rows: those that are most alike make groups, each as small as can be, that together have
enough, and all members of a group get its mean. Alike are nodes with similar features, their own
and their neighbours': the cosine between rows of :math:`(A + I) X`. No label and no role is used,
and nothing that differs by seed: other rows of another seed would tell more than one seed's.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fedcover.graphs.scaling import column_sums, scaled, scaling_of
from fedcover.party.data import PartyData
from fedcover.training.plan import Features, Index

NEAREST = 10  # how many of the most similar nodes a node may share a row with
DECIMALS = 6  # of a similarity; what rounding errors make of equal ones must not order them
ROUNDS = 200  # in which rows are taken back
DETERMINED = 1e-7  # a far end that is so near zero in a random null vector can be computed
UNSURE = 1.0  # the same where the solver has not come to an end
_CONVERGED = (0, 1, 2)  # what LSQR says then


def rows_of(x: Features, edges: Index, ends: sp.csr_array, least: int, *, shared: bool) -> Index:
    """The row of every node, -1 if it has none; ``ends`` (nodes × far ends) is 1 at links.

    ``shared``: whether nodes with too few far ends share rows, by features ``x`` and own ``edges``.
    """
    count = np.diff(ends.indptr)
    row: Index = np.where(count >= least, np.cumsum(count >= least) - 1, -1)
    few = np.flatnonzero((count > 0) & (count < least))
    if not shared or len(few) < 2:
        return row
    far = {int(k): set(ends.indices[ends.indptr[k] : ends.indptr[k + 1]].tolist()) for k in few}
    for number, members in enumerate(_groups(far, _similar(x, edges, few), least), row.max() + 1):
        row[members] = number
    return row


def sums_of(row: Index, ends: sp.csr_array) -> sp.csr_array:
    """Which far ends each row adds up (rows × far ends), each once."""
    has, rows = np.flatnonzero(row >= 0), int(row.max(initial=-1)) + 1
    member = sp.csr_array((np.ones(len(has)), (row[has], has)), shape=(rows, len(row)))
    sums = sp.csr_array(member @ ends)
    sums.data[:] = 1
    return sums


@dataclass
class _Group:
    nodes: list[int]
    far: set[int]

    def take(self, other: "_Group") -> None:
        self.nodes += other.nodes
        self.far |= other.far


def _groups(far: dict[int, set[int]], pairs: Index, least: int) -> list[list[int]]:
    """Nodes that share a row, by their far ends; ``pairs`` (2, m) are the most similar ones first.

    First two groups that lack far ends become one, then one that lacks some joins one that has
    enough. Whoever is left gets no row.
    """
    group = {node: _Group([node], set(own)) for node, own in far.items()}
    one, other = pairs.tolist()
    for lacking in (2, 1):
        for first, second in zip(one, other, strict=True):
            a, b = group[first], group[second]
            if a is not b and (len(a.far) < least) + (len(b.far) < least) == lacking:
                larger, smaller = (a, b) if len(a.nodes) >= len(b.nodes) else (b, a)
                larger.take(smaller)
                group |= dict.fromkeys(smaller.nodes, larger)
    found = {id(one): one.nodes for one in group.values() if len(one.far) >= least}
    return list(found.values())


def _similar(x: Features, edges: Index, nodes: Index) -> Index:
    """Pairs (2, m) of these nodes, the most similar first: of each its nearest ones."""
    from sklearn.neighbors import NearestNeighbors

    (source, target), count = edges, x.shape[0]
    near = sp.csr_array((np.ones(len(source)), (target, source)), shape=(count, count))
    mixed = (near + sp.eye_array(count, format="csr"))[nodes] @ x
    nearest = NearestNeighbors(n_neighbors=min(NEAREST, len(nodes) - 1), metric="cosine")
    distance, place = nearest.fit(mixed).kneighbors()
    one = np.repeat(np.arange(len(nodes)), place.shape[1])
    order = np.lexsort((place.ravel(), one, np.round(distance.ravel(), DECIMALS)))
    return np.stack([nodes[one[order]], nodes[place.ravel()[order]]])


def on_own_scale(data: PartyData, standardise: bool) -> Features:
    """A party's features on the scale of all its own nodes, whatever their roles; gaps filled."""
    moved = data.numeric & standardise
    gaps = np.empty(0, dtype=np.int64) if data.missing is None else data.missing[1]
    columns = np.union1d(np.flatnonzero(moved), gaps)
    sums = column_sums(data.x, np.arange(len(data.y)), columns, data.missing)
    return scaled(data.x, scaling_of(sums, columns, moved), data.missing)


def undetermined(sums: sp.csr_array, rng: np.random.Generator) -> Index:
    """Rows of these sums (rows × far ends) from which no far end follows: all if none does.

    Of several sums together no linear combination may be a single far end: {a, b, c, d} less
    {a, b, c} is d. Nor may one be modulo 2, which gives whole numbers' parity, so 0 and 1 away:
    {a, b, c}, {a, b, d} and {a, c, d} together have an odd number of a alone. Where there is one,
    the smallest sum that holds it is given up.
    """
    kept = np.arange(sums.shape[0])
    for _ in range(ROUNDS):
        own = sums[kept]
        there = np.flatnonzero(np.bincount(own.indices, minlength=sums.shape[1]))
        own = own[:, there]
        if not own.nnz:
            break
        follows = _linear(own, rng) | _by_parity(own)
        if not follows.any():
            return kept
        size, holding = own.sum(axis=1), own[:, np.flatnonzero(follows)].tocoo()
        order = np.lexsort((holding.row, size[holding.row], holding.col))
        first = np.flatnonzero(np.diff(holding.col[order], prepend=-1))
        kept = np.delete(kept, np.unique(holding.row[order][first]))
    return kept[:0]


def _linear(sums: sp.csr_array, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which far ends are a linear combination of the sums.

    Its unit vector is in their row space then, and it is zero in every vector that is orthogonal
    to them; else it is zero in a random one with probability 0.
    """
    draw, most = rng.standard_normal(sums.shape[1]), 20 * sums.shape[1]
    solved, ended = sp.linalg.lsqr(sums, sums @ draw, atol=1e-13, btol=1e-13, iter_lim=most)[:2]
    near = DETERMINED if ended in _CONVERGED else UNSURE
    follows: NDArray[np.bool_] = np.abs(draw - solved) < near
    return follows


def _by_parity(sums: sp.csr_array) -> NDArray[np.bool_]:
    """Which far ends are a sum of sums modulo 2: rows as bits, brought to reduced echelon form."""
    pivots: dict[int, int] = {}  # the lowest bit of a row, to the row
    for start, end in pairwise(sums.indptr.tolist()):
        row = sum(1 << far for far in sums.indices[start:end].tolist())
        while row and (low := (row & -row).bit_length() - 1) in pivots:
            row ^= pivots[low]
        if row:
            pivots[low] = row
    follows, leads = np.zeros(sums.shape[1], dtype=bool), 0
    for low in sorted(pivots, reverse=True):
        row = pivots[low]
        while others := row & leads:
            row ^= pivots[(others & -others).bit_length() - 1]
        pivots[low], leads = row, leads | 1 << low
        follows[low] = row == 1 << low
    return follows
