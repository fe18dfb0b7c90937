import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcover.conformal import (
    DAPS_GRID,
    RAPS_GRID,
    SNAPS_GRID,
    Diffusion,
    RapsConstants,
    choose_diffusion,
    choose_raps,
    converse,
    diffusion_client,
    diffusion_server,
    graph_scores,
    lac,
    prediction_sets,
    raps,
    raps_client,
    raps_server,
    true_scores,
)
from fedcover.errors import DataError, UsageError


def validation_nodes(seed, n, labels=6):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(labels, 0.4), size=n)
    y = np.array([rng.choice(labels, p=p) for p in probs], dtype=np.int64)
    return probs, y, rng.random(n)


def mean_size(probs, labels, u, constants, alpha):
    scores = raps(probs, u, *constants)
    rank = int(np.ceil((1 - alpha) * len(labels) - 1e-9))
    q_hat = np.sort(true_scores(scores, labels))[rank - 1]
    return prediction_sets(scores, q_hat).sum(axis=1).mean()


@pytest.mark.parametrize("n", [1, 5, 37, 400])
def test_chooses_the_smallest_mean_set(n):
    probs, labels, u = validation_nodes(n, n)
    sizes = [mean_size(probs, labels, u, c, 0.1) for c in RAPS_GRID]
    assert choose_raps(probs, labels, u) == RAPS_GRID[int(np.argmin(sizes))]


def test_a_penalty_wins_where_one_is_needed():
    # Nodes torn between two labels push q̂ to 1; nodes with a long tail then keep all of it.
    rng = np.random.default_rng(0)
    probs = np.full((300, 20), 0.7 / 19)
    probs[:, 0] = 0.3
    probs[:150] = 0.0
    probs[:150, :2] = 0.5
    labels = np.where(np.arange(300) < 150, rng.integers(0, 2, 300), 0)
    u = rng.random(300)
    none, strong = RapsConstants(0.0, 1), RapsConstants(0.5, 2)
    assert mean_size(probs, labels, u, none, 0.1) > 7
    assert mean_size(probs, labels, u, strong, 0.1) < 3
    assert choose_raps(probs, labels, u, grid=[none, strong]) == strong


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(0, 40), st.integers(1, 6))
def test_choice_does_not_depend_on_who_holds_the_nodes(seed, n, clients):
    nodes = validation_nodes(seed, n)
    owner = np.random.default_rng(seed).integers(0, clients, n)
    held = [tuple(part[owner == k] for part in nodes) for k in range(clients)]
    assert converse(raps_server(), raps_client, held) == choose_raps(*nodes)


def test_only_integer_counts_leave_a_client():
    up = []
    converse(
        raps_server(),
        raps_client,
        [validation_nodes(1, 9), validation_nodes(2, 4)],
        on_message=lambda direction, client, kind, message: (
            up.append(message) if direction == "up" else None
        ),
    )
    assert len(up) == 5 * 2
    assert all(array.dtype == np.int64 for message in up for array in message.values())
    assert [set(message) for message in up] == [{"counts"}] * 8 + [{"labels_kept"}] * 2


def test_a_handful_of_nodes_is_enough_to_choose():
    probs = np.array([[0.5, 0.5, 0.0, 0.0, 0.0], [0.4, 0.15, 0.15, 0.15, 0.15]])
    labels, u = np.array([1, 0]), np.array([0.1, 0.1])
    grid = [RapsConstants(0.0, 1), RapsConstants(0.5, 2)]  # 5 labels kept, or 2
    assert choose_raps(probs, labels, u, grid=grid) == grid[1]


def test_without_validation_nodes_it_is_plain_aps():
    assert choose_raps(*validation_nodes(0, 0)) == RapsConstants(0.0, 1)


def test_grid_is_searched_in_order_so_that_ties_are_settled():
    probs, labels, u = np.array([[1.0, 0.0]]), np.array([0]), np.array([0.5])
    grid = [RapsConstants(0.2, 1), RapsConstants(0.1, 1)]
    assert choose_raps(probs, labels, u, grid=grid) == grid[0]


def test_bad_alpha_is_refused():
    with pytest.raises(UsageError, match="alpha is 0"):
        choose_raps(*validation_nodes(0, 3), alpha=0)


def planted(seed, n=600, labels=5, same=0.9, degree=4):
    """An unsure model on a graph whose edges join equal labels with probability ``same``.

    Returns LAC scores, labels, edges both ways, two similar nodes a node by the same rule, and
    the validation nodes, half of all.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(0, labels, n)
    logits = rng.normal(size=(n, labels)) + 1.5 * np.eye(labels)[y]
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    by_label = [np.flatnonzero(y == label) for label in range(labels)]

    def partner(v):
        return rng.choice(by_label[y[v]]) if rng.random() < same else rng.integers(n)

    source = np.repeat(np.arange(n), degree // 2)
    target = np.array([partner(v) for v in source])
    edges = np.hstack([[source, target], [target, source]])
    similar = np.array([[partner(v), partner(v)] for v in range(n)])
    return lac(probs), y, edges, similar, np.flatnonzero(rng.random(n) < 0.5)


def labels_kept(parts, labels, constants, alpha=0.1):
    scores = parts.combined(constants)
    rank = int(np.ceil((1 - alpha) * len(labels) - 1e-9))
    q_hat = np.sort(true_scores(scores, labels))[rank - 1]
    return prediction_sets(scores, q_hat).sum()


def test_grids_begin_without_diffusion_and_grow():
    for grid in (DAPS_GRID, SNAPS_GRID):
        assert grid[0] == Diffusion(0.0, 0.0)
        totals = [sum(constants) for constants in grid]
        assert np.all(np.diff(totals) > -1e-12)
        assert totals[-1] < 1
        assert len(set(grid)) == len(grid)
    assert all(constants.similar == 0 for constants in DAPS_GRID)
    assert (1 / 3, 1 / 3) in SNAPS_GRID


@pytest.mark.parametrize("grid", [DAPS_GRID, SNAPS_GRID])
@pytest.mark.parametrize("same", [0.0, 0.4, 0.9])
def test_diffusion_is_the_one_that_keeps_the_fewest_labels(grid, same):
    scores, y, edges, similar, valid = planted(7, n=200, same=same)
    parts = graph_scores(scores, edges, similar).at(valid)
    kept = [labels_kept(parts, y[valid], constants) for constants in grid]
    assert choose_diffusion(parts, y[valid], grid=grid) == grid[int(np.argmin(kept))]


@pytest.mark.parametrize("seed", range(4))
def test_diffusion_is_strong_where_neighbours_help_and_none_where_they_are_noise(seed):
    # The chosen weights, chosen on validation nodes, must pay on the others too.
    scores, y, edges, similar, valid = planted(seed, same=0.95)
    parts = graph_scores(scores, edges, similar)
    rest = np.setdiff1d(np.arange(len(y)), valid)
    sizes = {}
    for name, grid in (("daps", DAPS_GRID), ("snaps", SNAPS_GRID)):
        chosen = choose_diffusion(parts.at(valid), y[valid], grid=grid)
        assert sum(chosen) >= 0.3
        sizes[name] = labels_kept(parts.at(rest), y[rest], chosen) / len(rest)
    plain = labels_kept(parts.at(rest), y[rest], Diffusion(0.0)) / len(rest)
    assert sizes["daps"] < 0.8 * plain
    assert sizes["snaps"] < sizes["daps"]

    scores, y, edges, _, valid = planted(seed, same=0.0, n=2000, degree=2)
    parts = graph_scores(scores, edges)
    assert choose_diffusion(parts.at(valid), y[valid]) == Diffusion(0.0)


def test_only_the_useful_of_two_sources_is_used():
    scores, y, edges, similar, valid = planted(3, n=1000, same=0.95)
    noise = np.random.default_rng(0).integers(0, len(y), similar.shape)
    parts = graph_scores(scores, edges, noise).at(valid)
    chosen = choose_diffusion(parts, y[valid], grid=SNAPS_GRID)
    assert chosen.neighbours >= 2 / 6
    assert chosen.similar <= 1 / 6
    parts = graph_scores(scores, np.hstack([noise.T, noise.T[::-1]]), similar).at(valid)
    chosen = choose_diffusion(parts, y[valid], grid=SNAPS_GRID)
    assert chosen.similar >= 2 / 6
    assert chosen.neighbours <= 1 / 6


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(0, 40), st.integers(1, 6))
def test_diffusion_does_not_depend_on_who_holds_the_nodes(seed, n, clients):
    scores, y, edges, similar, _ = planted(seed, n=60)
    parts, owner = graph_scores(scores, edges, similar), np.arange(n) % clients
    held = [
        (parts.at(nodes), y[nodes])
        for nodes in (np.flatnonzero(owner == k) for k in range(clients))
    ]
    whole = choose_diffusion(parts.at(np.arange(n)), y[:n], grid=SNAPS_GRID)
    assert converse(diffusion_server(grid=SNAPS_GRID), diffusion_client, held) == whole


def test_diffusion_sends_integer_counts_alone():
    scores, y, edges, _, valid = planted(0, n=50)
    local, messages = (graph_scores(scores, edges).at(valid), y[valid]), {"up": [], "down": []}
    converse(
        diffusion_server(),
        diffusion_client,
        [local, local],
        on_message=lambda direction, client, kind, message: messages[direction].append(message),
    )
    assert [set(message) for message in messages["up"]] == [{"counts"}] * 8 + [{"labels_kept"}] * 2
    assert all(array.dtype == np.int64 for m in messages["up"] for array in m.values())
    assert all(m["neighbours"].shape == (len(DAPS_GRID),) for m in messages["down"])


def test_diffusion_sees_no_label_but_those_of_validation_nodes():
    scores, y, edges, similar, valid = planted(5)
    parts = graph_scores(scores, edges, similar)  # without any label
    rng = np.random.default_rng(0)

    def choose(labels):
        return choose_diffusion(parts.at(valid), labels[valid], grid=SNAPS_GRID)

    noise = rng.integers(0, 5, len(y))
    others_replaced, valid_replaced = noise.copy(), y.copy()
    others_replaced[valid] = y[valid]
    valid_replaced[valid] = noise[valid]
    assert choose(others_replaced) == choose(y) != choose(valid_replaced)
    with pytest.raises(DataError, match="labels has shape"):  # of all nodes, say
        choose_diffusion(parts.at(valid), y)


def test_diffusion_without_validation_nodes_is_none():
    scores, y, edges, _, _ = planted(0, n=20)
    none = np.arange(0)
    assert choose_diffusion(graph_scores(scores, edges).at(none), y[none]) == Diffusion(0.0)


def test_similar_nodes_are_needed_where_the_grid_weighs_them():
    scores, y, edges, _, valid = planted(0, n=20)
    with pytest.raises(UsageError, match="without similar nodes"):
        choose_diffusion(graph_scores(scores, edges).at(valid), y[valid], grid=SNAPS_GRID)
