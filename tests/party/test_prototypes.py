"""Merging by hand, the rules for every clustering, and prototypes of planted clusters."""

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcover.config import Privacy, VaeSettings
from fedcover.errors import DataError, UsageError
from fedcover.models import vae
from fedcover.party.prototypes import (
    _centres,
    all_prototypes,
    cluster,
    means,
    merge_small,
    prototypes,
)

COUNTS = (2, 5, 10, 20)


def line(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)[:, None]


def test_a_small_cluster_joins_the_nearest_centre():
    points = line(0, 1, 2, 10, 11, 12, 5)
    labels = merge_small(points, np.array([0, 0, 0, 1, 1, 1, 2]), min_size=2)
    np.testing.assert_array_equal(labels, [0, 0, 0, 1, 1, 1, 0])  # 5 is 4 from 1, 6 from 11
    np.testing.assert_allclose(means(points, labels).ravel(), [2.0, 11.0])


def test_the_smallest_goes_first_and_moves_the_centre():
    # {20} (one point) joins {13, 14} → centre 47/3; only then is {13, 14, 20} large enough.
    points = line(0, 1, 2, 13, 14, 20)
    labels = merge_small(points, np.array([4, 4, 4, 7, 7, 9]), min_size=3)
    np.testing.assert_array_equal(labels, [0, 0, 0, 1, 1, 1])
    np.testing.assert_allclose(means(points, labels).ravel(), [1.0, 47 / 3])


def test_merging_may_end_in_one_cluster():
    labels = merge_small(line(0, 1, 9, 10), np.array([0, 0, 1, 1]), min_size=3)
    np.testing.assert_array_equal(labels, [0, 0, 0, 0])


def test_too_few_points_send_nothing():
    centres, sizes = cluster(np.ones((4, 3), np.float32), 2, 5, np.random.default_rng(0))
    assert centres.shape == (0, 3)
    assert sizes.shape == (0,)


def test_fewer_points_than_clusters():
    centres, sizes = cluster(line(1, 5, 9), 20, 1, np.random.default_rng(0))
    np.testing.assert_allclose(np.sort(centres.ravel()), [1, 5, 9])
    np.testing.assert_array_equal(sizes, [1, 1, 1])


def test_equal_points_are_one_cluster():
    centres, sizes = cluster(np.full((9, 2), 3.0, np.float32), 4, 2, np.random.default_rng(0))
    np.testing.assert_array_equal(centres, [[3.0, 3.0]])
    np.testing.assert_array_equal(sizes, [9])


@pytest.mark.parametrize(("m", "min_size", "name"), [(0, 5, "m"), (2, 0, "min_size")])
def test_counts_below_one_are_refused(m, min_size, name):
    with pytest.raises(UsageError, match=f"^{name} is 0"):
        cluster(line(1, 2), m, min_size, np.random.default_rng(0))


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 40), m=st.integers(1, 12), min_size=st.integers(1, 8), seed=st.integers(0, 999)
)
def test_every_cluster_is_large_enough_and_none_is_lost(n, m, min_size, seed):
    points = np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32)
    centres, sizes = cluster(points, m, min_size, np.random.default_rng(seed))
    if n < min_size:
        assert len(centres) == 0
        return
    assert sizes.min() >= min_size
    assert sizes.sum() == n
    assert len(centres) == len(sizes) <= m
    np.testing.assert_allclose(sizes @ centres / n, points.mean(axis=0), atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(labels=st.lists(st.integers(0, 6), min_size=1, max_size=40), min_size=st.integers(1, 8))
def test_merging_only_joins(labels, min_size):
    before = np.array(labels)
    points = np.random.default_rng(len(labels)).normal(size=(len(labels), 2))
    after = merge_small(points, before, min_size)
    for label in np.unique(before):
        assert len(np.unique(after[before == label])) == 1
    sizes = np.bincount(after)
    assert sizes.min() >= min(min_size, len(labels))
    for k, centre in enumerate(means(points, after)):
        np.testing.assert_allclose(centre, points[after == k].mean(axis=0))
    kept = np.unique(before, return_counts=True)[1] >= min_size
    if kept.all():
        assert len(sizes) == len(kept)


def planted(nodes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two blocks of binary features: ones with probability 0.8 in the own half, 0.05 outside."""
    rng = np.random.default_rng(seed)
    means_ = np.full((2, 40), 0.05)
    means_[0, :20] = means_[1, 20:] = 0.8
    block = np.arange(nodes) % 2
    x = (rng.random((nodes, 40)) < means_[block]).astype(np.float32)
    return x, means_


def test_prototypes_land_near_the_planted_means():
    features, truth = planted(200, seed=1)
    sent = prototypes(features, (0, 0), VaeSettings(epochs=150, lr=0.01), counts=(2,))
    assert sent[2].shape == (2, 40)
    assert sent[2].dtype == np.float32
    distance = np.linalg.norm(sent[2][:, None] - truth[None], axis=2)
    assert np.sort(distance.argmin(axis=1)).tolist() == [0, 1]
    assert distance.min(axis=1).max() < 0.15 * np.linalg.norm(truth[0] - truth[1])


def test_private_prototypes_know_the_mean():
    features, _ = planted(4000, seed=2)
    privacy = Privacy(epsilon=10, density=0.3)
    sent = prototypes(features, (0, 0), VaeSettings(hidden=16, latent=4), (2, 5), privacy)
    x = features.mean(axis=0)
    for m, centres in sent.items():
        assert 1 <= len(centres) <= m
        # Chance: what the public start alone would send, one density for all features.
        chance = np.linalg.norm(0.3 - x)
        assert np.linalg.norm(centres.mean(axis=0) - x) < 0.5 * chance


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "real"])
@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_a_party_sends_the_same_bits_in_any_company(threads, binary, sparse):
    """Whoever works beside it, and on however many threads."""
    rng = np.random.default_rng(6)
    features = [planted(n, seed=n)[0] for n in (30, 44, 3, 16, 117, 45, 30)]
    if not binary:
        features = [x * rng.normal(3, 1, x.shape).astype(np.float32) for x in features]
    if sparse:
        features = [sp.csr_array(x) for x in features]
    keys = [(0, k) for k in range(len(features))]
    settings, done = VaeSettings(epochs=20), []
    threads(1)
    together = all_prototypes(features, keys, settings, COUNTS, on_party=done.append)
    assert done == [1, 2, 3, 4, 5, 6, 7]
    for count in (1, 2, 3):
        threads(count)
        again = all_prototypes(features[::-1], keys[::-1], settings, COUNTS)[::-1]
        alone = [
            all_prototypes([x], [key], settings, COUNTS)[0]
            for x, key in zip(features, keys, strict=True)
        ]
        assert torch.get_num_threads() == count
        for sent, other, single in zip(together, again, alone, strict=True):
            assert sorted(sent) == [2, 5, 10, 20]
            for m in sent:
                np.testing.assert_array_equal(sent[m], other[m])
                np.testing.assert_array_equal(sent[m], single[m])
    assert all(centres.shape == (0, 40) for centres in together[2].values())


def test_an_interrupt_leaves_the_others_undone(threads):
    threads(2)
    features, settings = [planted(30, seed=1)[0]] * 50, VaeSettings(epochs=5)
    seen = []

    def interrupt(done: int) -> None:
        seen.append(done)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        all_prototypes(features, [(0, k) for k in range(50)], settings, (2,), on_party=interrupt)
    assert seen == [1]
    assert torch.get_num_threads() == 2


def test_every_party_needs_a_key():
    with pytest.raises(ValueError, match="shorter"):
        all_prototypes([planted(9, 0)[0]] * 2, [(0, 0)], VaeSettings(epochs=1), COUNTS)


def test_infinite_epsilon_is_no_privacy():
    features, _ = planted(40, seed=3)
    plain = prototypes(features, (0, 0), VaeSettings(epochs=5), COUNTS)
    privacy = Privacy(epsilon=float("inf"))
    infinite = prototypes(features, (0, 0), VaeSettings(epochs=5), COUNTS, privacy)
    for m in plain:
        np.testing.assert_array_equal(plain[m], infinite[m])


def test_private_training_refuses_before_it_begins(monkeypatch):
    monkeypatch.setattr(vae, "noise_multiplier", lambda _: 13.5)
    features = [planted(n, 0)[0] for n in (9, 2)]
    with pytest.raises(DataError, match="Client 1 has 2 training nodes"):
        all_prototypes(features, [(0, 0), (0, 1)], VaeSettings(), COUNTS, Privacy(epsilon=1))


def test_prototypes_of_different_m_are_unions_so_that_no_difference_is_a_node():
    """Were each M clustered by itself, two clusters could differ by one node, and so reveal it."""
    rng = np.random.default_rng(2)
    points = rng.normal(size=(60, 7)).astype(np.float32)
    settings = VaeSettings(min_cluster=5)
    found = _centres(points, (2, 5, 10), settings, (0, 0))
    assert list(found) == [10, 5, 2]
    assert [len(found[m]) for m in (2, 5)] == [2, 5]
    finest, sizes = cluster(points, 10, 5, np.random.default_rng([0, 0, 0xC105]))
    np.testing.assert_array_equal(found[10], finest)
    assert len(finest) <= 10
    for m in (2, 5):
        for centre in found[m]:
            unions = (
                np.average(finest[list(chosen)], axis=0, weights=sizes[list(chosen)])
                for count in range(1, len(finest) + 1)
                for chosen in combinations(range(len(finest)), count)
            )
            assert any(np.allclose(centre, union, atol=1e-5) for union in unions)
