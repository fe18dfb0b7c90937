import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedcover.conformal import RULES, calibrate, quantile_over_resplits, rules
from fedcover.errors import DataError, UsageError

ALPHAS = (0.05, 0.1, 0.2, 0.5, 0.9999999999999)
scores_of = st.one_of(st.sampled_from([0.0, -0.0, 1.0, 0.25, -1.0]), st.floats(-1e3, 1e3, width=32))


@st.composite
def resplits(draw):
    n, clients, repeats = draw(st.integers(1, 40)), draw(st.integers(1, 5)), draw(st.integers(1, 4))
    return (
        draw(hnp.arrays(np.float32, n, elements=scores_of)),
        draw(hnp.arrays(np.int64, n, elements=st.integers(0, clients - 1))),
        draw(hnp.arrays(np.bool_, (repeats, n))),
        clients,
    )


def by_conversation(rule, scores, client, mask, clients, shares=None):
    return np.array(
        [
            [
                calibrate(
                    [scores[row & (client == k)] for k in range(clients)],
                    alpha,
                    rule,
                    shares=shares,
                ).q_hat
                for alpha in ALPHAS
            ]
            for row in mask
        ],
        dtype=np.float32,
    )


@pytest.mark.parametrize("rule", RULES)
@given(resplits())
def test_same_bits_as_the_conversation(rule, drawn):
    scores, client, mask, clients = drawn
    fast = quantile_over_resplits(rule, scores, client, mask, ALPHAS, clients=clients)
    assert fast.dtype == np.float32
    assert fast.shape == (len(mask), len(ALPHAS))
    assert fast.tobytes() == by_conversation(rule, scores, client, mask, clients).tobytes()


@pytest.mark.parametrize("rule", RULES)
def test_same_bits_at_the_size_it_is_made_for(rule):
    rng = np.random.default_rng(1)
    scores = rng.random(4000).astype(np.float32)  # too many for a T-Digest to hold each by itself
    client = rng.integers(0, 12, 4000)
    mask = rng.random((10, 4000)) < 0.5
    fast = quantile_over_resplits(rule, scores, client, mask, ALPHAS)
    assert fast.tobytes() == by_conversation(rule, scores, client, mask, 12).tobytes()


# Shares so small that floats cannot see them beside the others, and others that sum to a level.
some_shares = st.sampled_from([0, 1, 2, 3, 10, 10**30, 0.1, 0.25, 1e-8, 1e-300])


@given(resplits(), st.lists(some_shares, min_size=5, max_size=5))
def test_same_bits_as_the_conversation_for_any_shares(drawn, shares):
    scores, client, mask, clients = drawn
    shares = [*shares[: clients - 1], shares[-1] or 1]
    fast = quantile_over_resplits(
        "exact", scores, client, mask, ALPHAS, clients=clients, shares=shares
    )
    slow = by_conversation("exact", scores, client, mask, clients, shares)
    assert fast.tobytes() == slow.tobytes()


def test_same_bits_for_shares_at_the_size_it_is_made_for():
    rng = np.random.default_rng(2)
    scores, client = rng.random(24_000).astype(np.float32).round(4), rng.integers(0, 12, 24_000)
    mask = rng.random((4, 24_000)) < 0.5
    for shares in (rng.integers(0, 2000, 12), rng.random(12), 10.0 ** -np.arange(12.0)):
        fast = quantile_over_resplits("exact", scores, client, mask, ALPHAS, shares=shares)
        slow = by_conversation("exact", scores, client, mask, 12, shares)
        assert fast.tobytes() == slow.tobytes()


def test_a_level_that_is_reached_exactly_is_reached():
    # Ten clients with a tenth each, ten scores each, which weigh 1/100: the first of the k-th row
    # reaches exactly (k - 1)/10 + 1/100, where floats waver.
    scores, client = np.repeat(np.arange(0.0, 10.0), 10), np.tile(np.arange(10), 10)
    mask, alphas = np.ones((1, 100), bool), [k / 10 for k in range(1, 10)]
    for shares in ([0.1] * 10, [7] * 10):
        q_hats = quantile_over_resplits("exact", scores, client, mask, alphas, shares=shares)
        assert q_hats.tolist() == [[9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]]


def test_tdigest_sketches_each_client_once_a_resplit_whatever_the_levels(monkeypatch):
    made = []
    client_of = rules.sketch_client
    monkeypatch.setattr(rules, "sketch_client", lambda *args: made.append(args) or client_of(*args))
    mask = np.random.default_rng(2).random((5, 60)) < 0.5
    quantile_over_resplits("tdigest", np.arange(60.0), np.arange(60) % 3, mask, ALPHAS)
    assert len(made) == 5 * 3


def test_clients_without_nodes_count_when_told():
    scores, client, mask = np.arange(18.0), np.zeros(18, int), np.ones((1, 18), bool)
    assert quantile_over_resplits("theorem1", scores, client, mask, [0.5]) == [[9.0]]
    assert quantile_over_resplits("theorem1", scores, client, mask, [0.5], clients=3) == [[10.0]]


def test_wrong_shapes_are_refused():
    scores, client, mask = np.arange(4.0), np.zeros(4, int), np.ones((2, 4), bool)
    with pytest.raises(DataError, match=r"true_scores has shape \(2, 2\)"):
        quantile_over_resplits("exact", scores.reshape(2, 2), client, mask, [0.1])
    with pytest.raises(DataError, match=r"is_calibration is bool of shape \(2, 3\)"):
        quantile_over_resplits("exact", scores, client, mask[:, :3], [0.1])
    with pytest.raises(DataError, match="is_calibration is int64"):
        quantile_over_resplits("exact", scores, client, mask.astype(int), [0.1])
    with pytest.raises(DataError, match=r"client\[0\] is 0; .* 0 … -1"):
        quantile_over_resplits("exact", scores, client, mask, [0.1], clients=0)
    with pytest.raises(UsageError, match="only 'exact' takes it"):
        quantile_over_resplits("theorem1", scores, client, mask, [0.1], shares=[1])
    with pytest.raises(UsageError, match="shares has length 2"):
        quantile_over_resplits("exact", scores, client, mask, [0.1], shares=[1, 1])
    with pytest.raises(UsageError, match="rule is 'mean'"):
        quantile_over_resplits("mean", scores, client, mask, [0.1])
