"""Roles of the nodes inside each client (paper, section 5.1): 20 % train, of which 20 % serve
as validation, and of the rest one half calibrates, the other half tests, unless told otherwise."""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from fedcover.errors import DataError, UsageError


class Role(IntEnum):
    """What a node is used for."""

    TRAIN = 0
    VALID = 1
    CALIB = 2
    TEST = 3


ROLE_NAMES = tuple(role.name.lower() for role in Role)  # the words for the roles, by number
ROLE_WORDS = {name: int(role) for name, role in zip(ROLE_NAMES, Role, strict=True)}
ROLE_WORDS |= {"training": 0, "val": 1, "validation": 1, "cal": 2, "calibration": 2, "testing": 3}
"""Roles by all words that stand for them, in lower case."""

NO_ROLE = -1  # A node without a label: a neighbour to others, and somebody to make a set for


def is_asked(roles: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Which nodes sets are made for: test nodes, and those without a label."""
    return np.asarray((roles == Role.TEST) | (roles == NO_ROLE))


def check_roles(roles: NDArray[np.integer]) -> None:
    """Refuse a number that is no role, before it is cast to a smaller type, where it might be."""
    wrong = (roles < NO_ROLE) | (roles > max(Role))
    if wrong.any():
        position = int(wrong.argmax())
        known = ", ".join(f"{number} ({name})" for number, name in enumerate(ROLE_NAMES))
        raise DataError(
            f"split has {roles[position]} at position {position}; it must be one of {known}, or "
            "-1 for none."
        )


def split(
    client: NDArray[np.integer],
    rng: np.random.Generator,
    train: float = 0.2,
    valid: float = 0.2,
    given: NDArray[np.integer] | None = None,
    names: Sequence[str] | None = None,
    labelled: NDArray[np.bool_] | None = None,
    test: float | None = None,
) -> NDArray[np.int8]:
    """Give every node (n,) a :class:`Role`, inside each client apart.

    Of a client's n nodes, round(train·n), at least one, are set aside for training; of these,
    round(valid·that) become validation, but never the last one. The rest is halved, test taking
    the odd node; with ``test``, round(test·n) nodes test, at least one unless it is 0, and what is
    left calibrates. ``given`` is the graph's own split column: it is checked and returned.
    ``names`` are the clients' names in errors. Nodes that are not ``labelled`` get
    :data:`NO_ROLE`, and the others are divided as if they were alone; every client needs some.
    """
    client = np.asarray(client)
    if not 0 < train < 1:
        raise UsageError(f"train is {train}, but must lie strictly between 0 and 1.")
    if not 0 <= valid < 1:
        raise UsageError(f"valid is {valid}, but must be at least 0 and below 1.")
    if test is not None and not (test >= 0 and train + test < 1):
        raise UsageError(
            f"test is {test} and train is {train}, but test must be at least 0, and both together "
            "below 1: the rest calibrates."
        )
    all_sizes = np.bincount(client)
    names = names or list(map(str, range(len(all_sizes))))
    kept = np.arange(len(client)) if labelled is None else np.flatnonzero(labelled)
    owner = client[kept]
    sizes = np.bincount(owner, minlength=len(all_sizes))
    without = np.flatnonzero((sizes == 0) & (all_sizes > 0))
    if len(without):
        raise DataError(
            f"Client {names[without[0]]} has no node with a label, so that it cannot take part."
        )
    roles = np.full(len(client), NO_ROLE, dtype=np.int8)
    if given is not None:
        given = np.asarray(given)
        if given.shape != client.shape:
            raise DataError(
                f"The split has {len(given)} entries, but there are {len(client)} nodes."
            )
        _check_given(given[kept], owner, names)
        roles[kept] = given[kept]
        return roles
    held_out = np.maximum(np.rint(train * sizes), 1).astype(np.int64)
    validation = np.minimum(np.rint(valid * held_out).astype(np.int64), held_out - 1)
    rest = sizes - held_out
    tests = rest - rest // 2
    if test is not None:
        tests = np.maximum(np.rint(test * sizes), test > 0).astype(np.int64)
    too_small = np.flatnonzero(rest - tests < 1)
    if len(too_small):
        k = too_small[0]
        raise DataError(
            f"Client {names[k]} has too few nodes, {sizes[k]}, to train on {train:.0%} of them"
            f"{f', test on {test:.0%}' if test else ''} and keep at least one for calibration"
            f"{' and one for testing' if test is None else ''}."
        )
    counts = np.stack([held_out - validation, validation, rest - tests, tests], axis=1)
    numbers = np.tile(np.arange(len(Role), dtype=np.int8), len(sizes))
    roles[kept[_shuffled(owner, rng)]] = np.repeat(numbers, counts.ravel())
    return roles


def resplits(
    roles: NDArray[np.integer], client: NDArray[np.integer], count: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Divide calibration and test anew ``count`` times, for judging coverage (docs/guarantee.md).

    Returns is_calibration (count, n): in each row, every client has as many calibration nodes as
    in ``roles``, drawn uniformly from its calibration and test nodes; those not drawn test.
    """
    if count < 1:
        raise UsageError(f"count of re-splits is {count}, but must be 1 or more.")
    roles, client = np.asarray(roles), np.asarray(client)
    pool = np.flatnonzero((roles == Role.CALIB) | (roles == Role.TEST))
    owner = client[pool]
    sizes = np.bincount(owner)
    n_calib = np.bincount(owner[roles[pool] == Role.CALIB], minlength=len(sizes))
    # Every draw lists the pool client by client, so the same places calibrate each time.
    halves = np.stack([n_calib, sizes - n_calib], axis=1)
    calibrates = np.repeat(np.tile([True, False], len(sizes)), halves.ravel())
    is_calibration = np.zeros((count, len(roles)), dtype=bool)
    for row in is_calibration:
        row[pool[_shuffled(owner, rng)]] = calibrates
    return is_calibration


def by_client(client: NDArray[np.integer]) -> NDArray[np.intp]:
    """All positions, client after client."""
    # numpy sorts 16-bit integers in linear time.
    keys = client.astype(np.uint16) if client.max(initial=0) < 2**16 else client
    return np.argsort(keys, kind="stable")


def _shuffled(client: NDArray[np.integer], rng: np.random.Generator) -> NDArray[np.intp]:
    """All positions, client after client, in random order inside each."""
    order = rng.permutation(len(client))
    return order[by_client(client[order])]


def _check_given(
    roles: NDArray[np.integer], client: NDArray[np.integer], names: Sequence[str]
) -> None:
    """Refuse an own split column unless every client has what training and calibration need."""
    wrong = ~np.isin(roles, list(Role))
    if wrong.any():
        raise DataError(f"The split has the value {roles[wrong][0]}, but roles are 0 … 3.")
    for role in (Role.TRAIN, Role.CALIB, Role.TEST):
        check_counts(role, np.bincount(client[roles == role], minlength=len(names)), names)


def check_counts(
    role: Role, counts: Sequence[int] | NDArray[np.integer], names: Sequence[str]
) -> None:
    """Refuse a client without any node of this role; it is no fault if nobody has one to test."""
    without = np.flatnonzero(np.asarray(counts) == 0)
    if len(without) and (role is not Role.TEST or len(without) < len(names)):
        word = ROLE_NAMES[role]
        raise DataError(f"Client {names[without[0]]} has no node with split '{word}'.")
