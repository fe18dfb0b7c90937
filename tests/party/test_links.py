"""Which pairs become links, on scores that can be read off."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcover.party.augment import choose_links, nearest, top_pairs


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)[:, None]


def as_list(pairs: np.ndarray) -> list[tuple[int, int]]:
    return [(int(generated), int(node)) for generated, node in pairs.T]


def test_the_top_pairs_by_hand():
    local, generated = column(1, 3, 2), column(1, -1, 2)
    # inner products, rows are local nodes: [1 -1 2], [3 -3 6], [2 -2 4]
    assert as_list(top_pairs(local, generated, 3)) == [(2, 1), (2, 2), (0, 1)]


def test_of_equal_scores_the_smaller_node_and_then_the_smaller_prototype_come_first():
    local, generated = column(1, 1, 1), column(2, 2)
    assert as_list(top_pairs(local, generated, 4)) == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert as_list(nearest(local, generated, 1)) == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1000])
def test_blocks_change_nothing(block):
    rng = np.random.default_rng(3)
    # few distinct values, so that ties lie across blocks
    local = rng.integers(-2, 3, size=(23, 2)).astype(np.float32)
    generated = rng.integers(-2, 3, size=(5, 2)).astype(np.float32)
    for count in (0, 1, 17, 60, 115, 500):
        whole = top_pairs(local, generated, count)
        np.testing.assert_array_equal(top_pairs(local, generated, count, block), whole)
    np.testing.assert_array_equal(nearest(local, generated, 3, block), nearest(local, generated, 3))


@given(
    st.lists(st.integers(-3, 3), min_size=1, max_size=12),
    st.lists(st.integers(-3, 3), min_size=1, max_size=6),
    st.integers(0, 80),
    st.integers(1, 40),
)
def test_top_pairs_are_those_of_a_full_sort(local, generated, count, block):
    scores = np.outer(local, generated).ravel()
    codes = np.argsort(-scores, kind="stable")[:count]
    nodes, prototypes = np.divmod(codes, len(generated))
    pairs = top_pairs(column(*local), column(*generated), count, block)
    np.testing.assert_array_equal(pairs, np.stack([prototypes, nodes]))


def test_a_share_of_all_pairs_and_a_share_of_each_nodes():
    rng = np.random.default_rng(0)
    local, generated = (rng.normal(size=(n, 4)).astype(np.float32) for n in (30, 20))
    everywhere = choose_links(local, generated, 0.1, "global")
    by_node = choose_links(local, generated, 0.1, "node")
    assert everywhere.shape == by_node.shape == (2, 60)
    assert set(np.bincount(by_node[1])) == {2}
    assert len(set(np.bincount(everywhere[1], minlength=30))) > 2
    # at least one link a node, however small the share
    assert choose_links(local, generated, 0.001, "node").shape == (2, 30)


@pytest.mark.parametrize("rule", ["node", "global"])
def test_without_prototypes_there_are_no_links(rule):
    nothing = np.empty((0, 4), dtype=np.float32)
    assert choose_links(np.ones((3, 4), np.float32), nothing, 0.1, rule).shape == (2, 0)


def test_memory_stays_bounded_for_a_large_client():
    """10⁵ nodes and 380 prototypes have 38 million pairs; never more than a block at once."""
    import tracemalloc

    rng = np.random.default_rng(0)
    local, generated = (rng.normal(size=(n, 16)).astype(np.float32) for n in (100_000, 380))
    tracemalloc.start()
    pairs = top_pairs(local, generated, 380_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert pairs.shape == (2, 380_000)
    assert peak < 100_000 * 380 * 4 / 1.5  # the scores alone would take 152 MB
