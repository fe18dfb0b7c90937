"""Which sums a party asks for, and which of its nodes share one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcover.party import neighbours
from fedcover.party.neighbour_rows import rows_of, sums_of
from fedcover.plans import SCALING
from fedcover.simulation.repetition import federation, prepare

from .linked import config, exchanged, graph_of, parties_of, random_graph


def graph(x: np.ndarray, edges: list[tuple[int, int]] | None = None) -> tuple[Any, Any]:
    once = np.array(edges or [], dtype=np.int64).reshape(-1, 2).T
    return np.asarray(x, float), np.concatenate([once, once[::-1]], axis=1)


def ends_of(listed: list[list[int]], far: int = 30) -> sp.csr_array:
    node = np.repeat(np.arange(len(listed)), [len(own) for own in listed])
    at = np.array([one for own in listed for one in own], dtype=np.int64)
    return sp.csr_array((np.ones(len(at)), (node, at)), shape=(len(listed), far))


def test_rows_by_hand() -> None:
    """Two directions of features: those of one direction share a row."""
    east, north = [1.0, 0.0], [0.0, 1.0]
    x = np.array([east, north, east, north, [1.0, 0.1], east, north])
    ends = ends_of([[0, 1, 2], [3], [4], [5, 6], [7, 8], [], [9]])
    row = rows_of(*graph(x), ends, 3, shared=True)
    # 0 has three; 2 and 4 look east and have three; 1 and 3 look north, and 6, left, joins them.
    assert row[0] == 0
    assert row[5] == -1
    assert row[2] == row[4] != row[1]
    assert row[1] == row[3] == row[6]
    assert sorted(set(row.tolist())) == [-1, 0, 1, 2]
    assert rows_of(*graph(x), ends, 3, shared=False).tolist() == [0] + [-1] * 6


def test_neighbours_make_nodes_alike() -> None:
    """By features alone 0 and 1 are as unlike as 0 and 2; 0 and 2 have a neighbour in common."""
    x = np.eye(4)
    ends = ends_of([[0, 1], [2, 3], [4, 5], []])
    row = rows_of(*graph(x, [(0, 3), (2, 3)]), ends, 3, shared=True)
    assert row[0] == row[2] >= 0
    # Node 1 is left over, and joins a group that has enough.
    assert row[1] == row[0]


def test_one_far_end_of_two_nodes_is_one() -> None:
    """Three nodes that all have the same far end have one together: no row of three."""
    ends = ends_of([[0], [0], [0]])
    assert rows_of(*graph(np.ones((3, 2))), ends, 3, shared=True).tolist() == [-1, -1, -1]
    ends = ends_of([[0, 1], [1, 2], []])
    row = rows_of(*graph(np.ones((3, 2))), ends, 3, shared=True)
    assert row.tolist() == [0, 0, -1]
    assert sums_of(row, ends).toarray()[:, :4].tolist() == [[1, 1, 1, 0]]


def test_one_far_end_fewer_than_enough_is_not_enough() -> None:
    assert rows_of(*graph(np.ones((2, 2))), ends_of([[0], [1]]), 3, shared=True).max() == -1
    assert rows_of(*graph(np.ones((1, 2))), ends_of([[0, 1]]), 3, shared=True).max() == -1


@st.composite
def listed(draw: st.DrawFn) -> list[list[int]]:
    own = st.lists(st.integers(0, 29), max_size=6, unique=True)
    return draw(st.lists(own, min_size=1, max_size=25))


@given(listed(), st.integers(1, 5), st.booleans())
@settings(max_examples=150, deadline=None)
def test_every_row_has_enough_far_ends(own: list[list[int]], least: int, shared: bool) -> None:
    x = np.random.default_rng(len(own)).random((len(own), 4))
    ends = ends_of(own)
    row = rows_of(*graph(x), ends, least, shared=shared)
    sums = sums_of(row, ends)
    assert (np.diff(sums.indptr) >= least).all()
    assert sorted(set(row.tolist()) - {-1}) == list(range(sums.shape[0]))  # none is empty
    count = np.array([len(one) for one in own])
    assert (row[count >= least] >= 0).all()  # whoever has enough is served,
    alone = np.bincount(row[row >= 0], minlength=sums.shape[0])
    assert (alone[row[count >= least]] == 1).all()  # by a row of its own;
    assert (row[count == 0] == -1).all()  # whoever has none gets none;
    if not shared:
        assert (row[count < least] == -1).all()  # nor does who has too few.


@pytest.mark.parametrize("least", [2, 3, 5])
def test_members_of_a_group_get_its_mean(least: int) -> None:
    """Over the protocol, masks and all: the plain mean over the distinct far ends of the group."""
    data = random_graph(edges=70, real=True)
    parties = parties_of(data, least=least, shared=True, standardise=False)
    carrier = exchanged(parties)
    x, client = data.x.numpy(), data.client.numpy()
    source, target = data.edge_index.numpy()
    cut = client[source] != client[target]
    shared = 0
    for party in parties:
        own, row = np.flatnonzero(client == party.number), neighbours.rows_of(party)
        told = party.told[neighbours.SUMS]
        assert told["node"].tolist() == np.flatnonzero(row >= 0).tolist()
        for node, number, mean in zip(*(told[k] for k in ("node", "number", "mean")), strict=True):
            members = own[row == row[node]]
            far = np.unique(source[cut & np.isin(target, members)])
            assert len(far) >= least
            assert mean == pytest.approx(x[far].mean(axis=0), abs=1e-6)
            assert number == (cut & (target == own[node])).sum()
            weight = told["weight"][told["node"] == node]
            assert weight == pytest.approx(number**0.5 / (4 if len(members) > 1 else 1))
            shared += len(members) > 1
    assert shared > 4
    for verb, _, query in carrier.down:
        if verb == "receive":
            assert (query["numbers"] >= least).all()


def test_who_shares_depends_on_no_label_and_no_role() -> None:
    data = random_graph(edges=70, real=True)
    before = [neighbours.rows_of(one).tolist() for one in served(parties_of(data, shared=True))]
    rng = np.random.default_rng(1)
    data.y = data.y[rng.permutation(len(data.y))]
    data.split = data.split[rng.permutation(len(data.y))]
    assert [neighbours.rows_of(one).tolist() for one in served(parties_of(data, shared=True))] == (
        before
    )


def test_another_seed_has_the_same_rows() -> None:
    """Its training nodes are others, and so is the scale of its features; the rows may not be."""
    data = random_graph(edges=70, real=True)
    data.x *= torch.logspace(0, 3, data.x.shape[1])
    del data.split
    told = config(shared=True, standardise=True)
    found = []
    for seed in (0, 1):
        parties = list(federation(prepare(data, told, seed), told).parties)
        scaling = {"mean": np.full(20, seed), "scale": np.arange(1, 21.0) ** seed}
        for party in parties:
            party.tell(SCALING, scaling | {"fill": np.zeros(20)})
        found.append([neighbours.rows_of(one).tolist() for one in served(parties)])
    assert found[0] == found[1]
    assert max(map(max, found[0])) > 3


def served(parties: list) -> list:
    exchanged(parties)
    return parties


def test_a_group_whose_sum_would_tell_a_far_end_is_given_up() -> None:
    """Nodes 0 and 1 of party 0 share {2, 3, 4}; node 9 has {2, 3, 4, 7}: less them, it is 7."""
    x = np.ones((12, 2))
    edges = [(0, 2), (0, 3), (1, 3), (1, 4), (9, 2), (9, 3), (9, 4), (9, 7)]
    party = served(parties_of(graph_of(x, edges=edges), shared=True))[0]
    row = neighbours.rows_of(party)  # of nodes 0, 1 and 9
    assert row.tolist() in ([0, 0, -1], [-1, -1, 0])
