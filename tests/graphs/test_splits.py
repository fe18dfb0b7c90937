import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcover.errors import DataError, UsageError
from fedcover.graphs.splits import Role, is_asked, resplits, split

sizes_of_clients = st.lists(st.integers(3, 60), min_size=1, max_size=8)


def clients_of(sizes, rng):
    return rng.permutation(np.repeat(np.arange(len(sizes)), sizes))


def counts_by_client(roles, client):
    return [np.bincount(roles[client == k], minlength=4).tolist() for k in range(client.max() + 1)]


@pytest.mark.parametrize(
    ("nodes", "train", "valid", "expected"),
    [
        (3, 0.2, 0.2, [1, 0, 1, 1]),  # one training node: no validation
        (8, 0.2, 0.2, [2, 0, 3, 3]),
        (14, 0.2, 0.2, [2, 1, 5, 6]),  # test takes the odd node
        (100, 0.2, 0.2, [16, 4, 40, 40]),
        (100, 0.5, 0.9, [5, 45, 25, 25]),
        (100, 0.02, 0.99, [1, 1, 49, 49]),  # validation never takes the last training node
        (100, 0.001, 0.0, [1, 0, 49, 50]),
    ],
)
def test_sizes_by_hand(nodes, train, valid, expected):
    roles = split(np.zeros(nodes, dtype=np.int64), np.random.default_rng(0), train, valid)
    assert np.bincount(roles, minlength=4).tolist() == expected
    assert roles.dtype == np.int8


@pytest.mark.parametrize(
    ("nodes", "train", "test", "expected"),
    [
        (2, 0.2, 0.0, [1, 0, 1, 0]),  # two nodes are enough without testing
        (100, 0.2, 0.0, [16, 4, 80, 0]),
        (100, 0.2, 0.1, [16, 4, 70, 10]),
        (100, 0.2, 0.001, [16, 4, 79, 1]),  # a share above 0 is one node at least
        (100, 0.7, 0.29, [56, 14, 1, 29]),
    ],
)
def test_the_share_that_tests_is_of_all_nodes_of_a_client(nodes, train, test, expected):
    client = np.zeros(nodes, dtype=np.int64)
    roles = split(client, np.random.default_rng(0), train, test=test)
    assert np.bincount(roles, minlength=4).tolist() == expected


def test_nodes_without_a_label_are_asked_about():
    labelled = np.arange(20) >= 5
    roles = split(np.zeros(20, np.int64), np.random.default_rng(0), labelled=labelled, test=0.2)
    assert is_asked(roles).tolist() == (~labelled | (roles == Role.TEST)).tolist()
    assert not is_asked(np.arange(3)).any()


@given(sizes_of_clients, st.integers(0, 2**32))
def test_every_client_is_split_as_if_alone(sizes, seed):
    rng = np.random.default_rng(seed)
    client = clients_of(sizes, rng)
    roles = split(client, rng)
    for size, counts in zip(sizes, counts_by_client(roles, client), strict=True):
        alone = split(np.zeros(size, dtype=np.int64), np.random.default_rng(1))
        assert counts == np.bincount(alone, minlength=4).tolist()
        assert counts[Role.TRAIN] >= 1
        assert counts[Role.TRAIN] + counts[Role.VALID] == max(1, round(0.2 * size))
        assert counts[Role.TEST] - counts[Role.CALIB] in (0, 1)


def test_same_seed_same_split_and_other_seed_another():
    client = np.repeat(np.arange(3), 40)
    first, again, other = (split(client, np.random.default_rng(s)) for s in (5, 5, 6))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_split_is_uniform():
    client = np.array([0] * 5 + [1] * 10)
    rng = np.random.default_rng(0)
    draws = np.stack([split(client, rng) for _ in range(4000)])
    for role, small, large in [(Role.TRAIN, 1 / 5, 2 / 10), (Role.CALIB, 2 / 5, 4 / 10)]:
        expected = np.where(client == 0, small, large)
        error = np.sqrt(expected * (1 - expected) / len(draws))
        assert (np.abs((draws == role).mean(axis=0) - expected) < 4.5 * error).all()


@given(sizes_of_clients, st.integers(0, 2**32))
def test_resplits_keep_each_clients_numbers(sizes, seed):
    rng = np.random.default_rng(seed)
    client = clients_of(sizes, rng)
    roles = split(client, rng)
    is_calibration = resplits(roles, client, 6, rng)
    assert is_calibration.shape == (6, len(client))
    assert not is_calibration[:, roles <= Role.VALID].any()
    expected = np.bincount(client[roles == Role.CALIB])
    for row in is_calibration:
        assert np.array_equal(np.bincount(client[row], minlength=len(sizes)), expected)


def test_resplits_are_uniform_over_subsets():
    client = np.array([0, 1, 0, 1, 0, 1, 0, 1, 0])
    roles = np.array([2, 2, 2, 0, 3, 3, 3, 3, 1], dtype=np.int8)  # pools: {0, 2, 4, 6}, {1, 5, 7}
    rows = resplits(roles, client, 12_000, np.random.default_rng(3))
    subsets, times = np.unique(rows, axis=0, return_counts=True)
    assert len(subsets) == 6 * 3  # (4 choose 2) × (3 choose 1), all of them, jointly
    expected = 12_000 / 18
    assert ((times - expected) ** 2 / expected).sum() < 40.8  # chi-square, 17 d.f., p = 0.001


def test_more_than_65536_clients():
    client = np.random.default_rng(0).permutation(np.repeat(np.arange(70_000), 3))
    roles = split(client, np.random.default_rng(1))
    for role in (Role.TRAIN, Role.CALIB, Role.TEST):
        assert np.array_equal(np.sort(client[roles == role]), np.arange(70_000))


def test_given_split_is_kept():
    client = np.array([0, 0, 0, 1, 1, 1, 1])
    roles = np.array([3, 2, 0, 0, 1, 2, 3])
    kept = split(client, np.random.default_rng(0), given=roles)
    assert kept.tolist() == roles.tolist()
    assert kept.dtype == np.int8


def test_a_given_split_may_do_without_test_nodes_everywhere():
    roles = np.array([2, 2, 0, 0, 1, 2, 2])
    kept = split(np.array([0, 0, 0, 1, 1, 1, 1]), np.random.default_rng(0), given=roles)
    assert kept.tolist() == roles.tolist()


@pytest.mark.parametrize(
    ("arguments", "error", "fragment"),
    [
        ({"train": 0.0}, UsageError, "train is 0.0"),
        ({"train": 1.0}, UsageError, "train is 1.0"),
        ({"train": float("nan")}, UsageError, "train is nan"),
        ({"valid": 1.0}, UsageError, "valid is 1.0"),
        ({"valid": -0.1}, UsageError, "valid is -0.1"),
        ({"train": 0.9}, DataError, "Client 1 has too few nodes, 4, to train on 90%"),
        ({"train": 0.9, "names": ["n", "south"]}, DataError, "Client south has too few nodes, 4,"),
        ({"test": -0.1}, UsageError, "test is -0.1 and train is 0.2"),
        ({"test": float("nan")}, UsageError, "test is nan"),
        ({"test": 0.8}, UsageError, "test is 0.8 and train is 0.2"),
        ({"test": 0.7}, DataError, "Client 1 has too few nodes, 4, to train on 20% of them, test"),
        ({"given": np.zeros(3)}, DataError, "3 entries, but there are 34 nodes"),
        ({"given": np.full(34, 4)}, DataError, "the value 4"),
        ({"given": np.arange(34) % 2 * 3}, DataError, "Client 0 has no node with split 'calib'"),
        (
            {"given": np.array([0, 2, 3] * 10 + [0, 1, 1, 2]), "names": ["north", "south"]},
            DataError,
            "Client south has no node with split 'test'",
        ),
    ],
)
def test_split_refuses(arguments, error, fragment):
    with pytest.raises(error) as caught:
        split(np.array([0] * 30 + [1] * 4), np.random.default_rng(0), **arguments)
    assert fragment in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("nodes", [1, 2])
def test_split_refuses_tiny_clients(nodes):
    with pytest.raises(DataError, match=f"Client 1 has too few nodes, {nodes},"):
        split(np.array([0] * 5 + [1] * nodes), np.random.default_rng(0))


def test_resplits_refuse_no_draw():
    with pytest.raises(UsageError, match="count of re-splits is 0"):
        resplits(np.array([2, 3]), np.zeros(2, int), 0, np.random.default_rng(0))
