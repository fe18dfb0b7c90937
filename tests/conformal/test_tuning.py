import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcover.conformal import (
    RAPS_GRID,
    RapsConstants,
    choose_raps,
    converse,
    prediction_sets,
    raps,
    raps_client,
    raps_server,
    true_scores,
)
from fedcover.errors import UsageError


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
