import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcover.conformal import (
    GRAPH_SCORES,
    SCORES,
    Diffusion,
    calibrate,
    coverage,
    graph_scores,
    prediction_sets,
    score,
    true_scores,
)
from fedcover.conformal.graph_scores import neighbour_mean, similar_mean
from fedcover.errors import DataError, UsageError

# A path 0 – 1 – 2 and a node 3 without neighbours; two labels.
SCORES_BY_HAND = np.array([[0.5, 0.25], [1.0, 0.0], [0.0, 0.75], [0.25, 1.0]], dtype=np.float32)
PATH = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
# Node 0 is like 2 and 3, node 1 like 3 alone, node 2 like nobody, node 3 like 0 and 1.
SIMILAR = np.array([[2, 3], [3, -1], [-1, -1], [0, 1]])


def diffused(scores, edges, strength):
    return graph_scores(scores, edges).combined(Diffusion(strength))


def snaps(scores, edges, similar, lam, mu, weight=None):
    return graph_scores(scores, edges, similar, weight).combined(Diffusion(mu, lam))


@st.composite
def cases(draw):
    seed = draw(st.integers(0, 2**32 - 1))
    n, labels, edges, k = (
        draw(st.integers(1, 12)),
        draw(st.integers(1, 5)),
        draw(st.integers(0, 40)),
        draw(st.integers(0, 4)),
    )
    rng = np.random.default_rng(seed)
    scores = rng.random((n, labels)).astype(np.float32)
    return scores, rng.integers(0, n, (2, edges)), rng.integers(-1, n, (n, k)), rng


def test_daps_by_hand():
    expected = [
        [0.75 * 0.5 + 0.25 * 1.0, 0.75 * 0.25 + 0.25 * 0.0],  # neighbour 1
        [0.75 * 1.0 + 0.25 * (0.5 + 0.0) / 2, 0.75 * 0.0 + 0.25 * (0.25 + 0.75) / 2],  # 0 and 2
        [0.75 * 0.0 + 0.25 * 1.0, 0.75 * 0.75 + 0.25 * 0.0],  # neighbour 1
        [0.25, 1.0],  # no neighbours: its own
    ]
    np.testing.assert_array_equal(diffused(SCORES_BY_HAND, PATH, 0.25), expected)


def test_snaps_by_hand():
    lam, mu = 0.25, 0.5  # own 0.25, similar 0.25, neighbours 0.5
    expected = [
        [
            0.25 * 0.5 + lam * (0.0 + 0.25) / 2 + mu * 1.0,
            0.25 * 0.25 + lam * (0.75 + 1.0) / 2 + mu * 0.0,
        ],
        [
            0.25 * 1.0 + lam * 0.25 + mu * (0.5 + 0.0) / 2,  # one similar node: it alone
            0.25 * 0.0 + lam * 1.0 + mu * (0.25 + 0.75) / 2,
        ],
        [
            0.25 * 0.0 + lam * 0.0 + mu * 1.0,  # no similar nodes: its own score instead
            0.25 * 0.75 + lam * 0.75 + mu * 0.0,
        ],
        [
            0.25 * 0.25 + lam * (0.5 + 1.0) / 2 + mu * 0.25,  # no neighbours: its own instead
            0.25 * 1.0 + lam * (0.25 + 0.0) / 2 + mu * 1.0,
        ],
    ]
    np.testing.assert_array_equal(snaps(SCORES_BY_HAND, PATH, SIMILAR, lam, mu), expected)


def test_snaps_weighed_by_similarity_by_hand():
    weight = np.array([[0.75, 0.25], [0.5, 9.0], [1.0, 1.0], [0.0, 0.0]])
    expected = [
        [0.75 * 0.0 + 0.25 * 0.25, 0.75 * 0.75 + 0.25 * 1.0],
        [0.25, 1.0],  # node 3 alone: what stands beside −1 counts for nothing
        [0.0, 0.75],  # nobody: its own
        [0.25, 1.0],  # two nodes that weigh nothing: its own
    ]
    np.testing.assert_array_equal(similar_mean(SCORES_BY_HAND, SIMILAR, weight), expected)
    mixed = snaps(SCORES_BY_HAND, PATH, SIMILAR, lam=1.0, mu=0.0, weight=weight)
    np.testing.assert_array_equal(mixed, expected)


def test_every_edge_counts_as_given():
    edges = np.array([[1, 1, 2, 0], [0, 0, 0, 0]])  # 1 → 0 twice, 2 → 0, and a loop
    mean = neighbour_mean(SCORES_BY_HAND, edges)
    np.testing.assert_array_equal(mean[0], [(1 + 1 + 0 + 0.5) / 4, (0 + 0 + 0.75 + 0.25) / 4])
    np.testing.assert_array_equal(mean[1:], SCORES_BY_HAND[1:])  # edges lead away from them


@given(cases(), st.floats(0, 1), st.floats(0, 1))
def test_against_dense_matrices(case, a, b):
    scores, edges, similar, _ = case
    lam, mu = a * b, a * (1 - b)
    n = len(scores)
    adjacency, alike = np.zeros((n, n)), np.zeros((n, n))
    np.add.at(adjacency, (edges[1], edges[0]), 1.0)
    np.add.at(alike, (np.nonzero(similar >= 0)[0], similar[similar >= 0]), 1.0)
    for matrix in (adjacency, alike):
        empty = matrix.sum(axis=1) == 0
        matrix[empty, empty] = 1.0
        matrix /= matrix.sum(axis=1, keepdims=True)
    own = scores.astype(np.float64)
    expected = (1 - lam - mu) * own + lam * alike @ own + mu * adjacency @ own
    result = snaps(scores, edges, similar, lam, mu)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)


@given(cases())
def test_without_diffusion_it_is_the_base_score_bit_for_bit(case):
    scores, edges, similar, _ = case
    np.testing.assert_array_equal(diffused(scores, edges, 0.0), scores)
    np.testing.assert_array_equal(snaps(scores, edges, similar, 0.0, 0.0), scores)


@given(cases(), st.floats(0, 1))
def test_a_node_with_nobody_around_keeps_its_score_bit_for_bit(case, strength):
    scores, _, similar, _ = case
    none = np.empty((2, 0), dtype=np.int64)
    np.testing.assert_array_equal(diffused(scores, none, strength), scores)
    alone = np.full_like(similar, -1)
    mixed = snaps(scores, none, alone, strength / 2, strength / 2)
    np.testing.assert_array_equal(mixed, scores)


@given(cases())
def test_the_order_of_edges_changes_no_bit(case):
    scores, edges, _, rng = case
    shuffled = edges[:, rng.permutation(edges.shape[1])]
    np.testing.assert_array_equal(neighbour_mean(scores, edges), neighbour_mean(scores, shuffled))


@given(cases())
def test_a_new_numbering_of_the_nodes_renumbers_the_scores(case):
    scores, edges, similar, rng = case
    order = rng.permutation(len(scores))  # the new node i is the old node order[i]
    new = np.append(np.argsort(order), -1)  # and the old −1 stays −1
    whole = snaps(scores, edges, similar, 0.3, 0.5)
    permuted = snaps(scores[order], new[edges], new[similar[order]], 0.3, 0.5)
    np.testing.assert_allclose(permuted, whole[order], rtol=1e-6, atol=1e-7)


@given(cases(), st.floats(-2, 2), st.floats(-2, 2))
def test_diffusion_is_linear(case, a, b):
    scores, edges, similar, rng = case
    others = rng.random(scores.shape)
    both = snaps(a * scores + b * others, edges, similar, 0.3, 0.5)
    apart = a * snaps(scores, edges, similar, 0.3, 0.5).astype(float)
    apart += b * snaps(others, edges, similar, 0.3, 0.5).astype(float)
    np.testing.assert_allclose(both, apart, atol=2e-6)


@given(cases(), st.floats(0, 1))
def test_mixed_scores_stay_between_the_lowest_and_the_highest(case, strength):
    scores, edges, similar, _ = case
    mixed = snaps(scores, edges, similar, strength / 2, strength / 2)
    assert (mixed >= scores.min(axis=0) - 1e-6).all()
    assert (mixed <= scores.max(axis=0) + 1e-6).all()


@given(cases())
def test_some_nodes_are_mixed_as_all_are(case):
    scores, edges, similar, rng = case
    some = rng.random(len(scores)) < 0.5
    parts, weights = graph_scores(scores, edges, similar), Diffusion(0.3, 0.2)
    whole = parts.combined(weights)
    np.testing.assert_array_equal(parts.at(some).combined(weights), whole[some])
    np.testing.assert_array_equal(parts.at(np.flatnonzero(some)).combined(weights), whole[some])


def test_coverage_is_kept_whatever_the_graph_says():
    # Labels that neighbours say nothing about, strong diffusion: large sets, but valid ones.
    rng = np.random.default_rng(0)
    n = 4000
    probs = rng.dirichlet(np.full(4, 0.5), size=n)
    labels = np.array([rng.choice(4, p=p) for p in probs])
    mixed = diffused(score("aps", probs, rng.random(n)), rng.integers(0, n, (2, 5 * n)), 0.8)
    covered = []
    for _ in range(30):
        order = rng.permutation(n)
        calibration, test = order[: n // 2], order[n // 2 :]
        q_hat = calibrate([true_scores(mixed[calibration], labels[calibration])], 0.1).q_hat
        covered.append(coverage(prediction_sets(mixed[test], q_hat), labels[test]))
    assert abs(np.mean(covered) - 0.9) < 0.005


def test_registry():
    assert {name: (entry.base, entry.similar) for name, entry in GRAPH_SCORES.items()} == {
        "daps": ("aps", False),
        "dlac": ("lac", False),
        "snaps": ("aps", True),
        "slac": ("lac", True),
    }
    assert not set(GRAPH_SCORES) & set(SCORES)


def test_no_nodes_no_scores():
    none = np.empty((0, 3), dtype=np.float32)
    mixed = snaps(none, np.empty((2, 0), int), np.empty((0, 4), int), 0.2, 0.2)
    assert mixed.shape == (0, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scores": np.zeros(4)}, r"scores has shape \(4,\); it must be \(nodes, labels\)"),
        ({"scores": np.full((4, 2), np.nan)}, r"scores\[0, 0\] is nan"),
        ({"scores": [[0, 0], [0, np.inf], [0, 0], [0, 0]]}, r"scores\[1, 1\] is inf"),
        ({"edge_index": np.zeros((3, 2), int)}, r"edge_index has shape \(3, 2\)"),
        ({"edge_index": [[0.0], [1.0]]}, "edge_index has type float64"),
        ({"edge_index": [[0, 1], [1, 4]]}, r"edge_index\[1, 1\] is 4; it must lie in 0 … 3"),
        ({"edge_index": [[-1], [1]]}, r"edge_index\[0, 0\] is -1"),
        ({"similar": [[0], [1]]}, r"similar has shape \(2, 1\); it must be \(4, k\)"),
        ({"similar": [[0], [1], [2], [-2]]}, r"similar\[3, 0\] is -2; it must lie in -1 … 3"),
        ({"weight": np.ones((4, 3))}, r"weight has shape \(4, 3\); it must be \(4, 2\)"),
        ({"weight": [[1, 1], [1, -1], [1, 1], [1, 1]]}, r"weight\[1, 1\] is -1"),
    ],
)
def test_bad_arrays_are_refused_with_their_place(arguments, message):
    good = {"scores": SCORES_BY_HAND, "edge_index": PATH, "similar": SIMILAR}
    with pytest.raises(DataError, match=message):
        graph_scores(**(good | arguments))


def test_bad_weights_are_refused():
    parts = graph_scores(SCORES_BY_HAND, PATH)
    with pytest.raises(UsageError, match=r"neighbours weighs -0\.1; a weight lies in 0 … 1"):
        parts.combined(Diffusion(-0.1))
    with pytest.raises(UsageError, match="similar weighs nan"):
        parts.combined(Diffusion(0.5, float("nan")))
    with pytest.raises(UsageError, match=r"weigh 0\.75 and 0\.5; together at most 1"):
        parts.combined(Diffusion(0.75, 0.5))
    with pytest.raises(UsageError, match=r"similar weighs 0\.5, but .* without similar nodes"):
        parts.combined(Diffusion(0.25, 0.5))
