import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedcover.conformal import RULES, calibrate, exact_rank, message_bytes
from fedcover.errors import DataError, UsageError

TINY = np.finfo(np.float32).smallest_subnormal
# A few awkward values drawn often make ties, signed zeros, denormals and infinities common.
awkward = st.sampled_from(
    [0.0, -0.0, TINY, -TINY, 1.0, -1.0, 0.5, 2.0**126, -(2.0**126), np.inf, -np.inf]
)
values = st.one_of(awkward, st.floats(width=32, allow_nan=False))
finite = st.one_of(
    st.sampled_from([0.0, -0.0, TINY, -TINY, 1.0, 0.5, 2.0**99]),
    st.floats(-(2.0**99), 2.0**99, width=32),
)


def client_scores(elements):
    array = hnp.arrays(np.float32, st.integers(0, 25), elements=elements)
    return st.lists(array, min_size=1, max_size=6)


alphas = st.sampled_from([0.01, 0.05, 0.1, 0.2, 0.5, 0.9, 0.99])


@given(client_scores(values), alphas)
def test_exact_is_the_pooled_order_statistic_bit_for_bit(clients, alpha):
    pooled = np.sort(np.concatenate(clients) + np.float32(0.0))
    result = calibrate(clients, alpha)
    rank = exact_rank(alpha, len(pooled), len(clients))
    expected = pooled[rank - 1] if rank <= len(pooled) else np.float32(np.inf)
    assert np.float32(result.q_hat).tobytes() == expected.tobytes()
    assert (result.n_calibration, result.clients, result.rank) == (
        len(pooled),
        len(clients),
        rank,
    )
    assert bool(result.note) == (rank > len(pooled))


@given(st.data(), hnp.arrays(np.float32, st.integers(1, 60), elements=values), alphas)
def test_exact_does_not_depend_on_who_holds_which_score(data, scores, alpha):
    clients = data.draw(st.integers(1, 5))
    owners = [
        data.draw(hnp.arrays(np.int64, len(scores), elements=st.integers(0, clients - 1)))
        for _ in range(2)
    ]
    first, second = (calibrate([scores[o == k] for k in range(clients)], alpha) for o in owners)
    assert first == second


def test_every_rank_of_a_large_sample_is_found():
    rng = np.random.default_rng(3)
    scores = rng.normal(size=997).astype(np.float32).round(2)  # many ties, both signs
    clients = np.array_split(scores, 3)
    ordered = np.sort(scores) + np.float32(0.0)
    for alpha in np.arange(0.005, 1.0, 0.005):
        result = calibrate(clients, alpha)
        assert result.q_hat == ordered[result.rank - 1]


def test_exact_sends_nothing_but_four_histograms_of_counts():
    rng = np.random.default_rng(0)
    scores = [rng.random(40).astype(np.float32), rng.random(7).astype(np.float32)]
    up = []
    result = calibrate(
        scores,
        0.2,
        on_message=lambda direction, client, kind, message: (
            up.append((client, kind, message)) if direction == "up" else None
        ),
    )
    assert len(up) == 4 * 2
    for client, kind, message in up:
        assert kind == "quantile"
        assert list(message) == ["counts"]
        assert message["counts"].dtype == np.int64
        assert message["counts"].shape == (256,)
        assert message["counts"].min() >= 0
        assert message["counts"].sum() <= len(scores[client])
        assert message_bytes(message) == 2048
    firsts = [message["counts"].sum() for _, _, message in up[:2]]
    assert firsts == [40, 7]
    # What is left in the last round has q̂'s three leading bytes; it cannot be everyone.
    assert 1 <= sum(message["counts"].sum() for _, _, message in up[-2:]) < 47
    assert result.q_hat == np.sort(np.concatenate(scores))[exact_rank(0.2, 47, 2) - 1]


def test_rank_above_n_asks_nothing_further_and_says_full_sets():
    asked = []
    result = calibrate(
        [np.arange(8.0), np.arange(1.0)],
        0.1,
        on_message=lambda direction, client, kind, message: asked.append(direction),
    )
    assert asked == ["down", "up"] * 2
    assert (result.q_hat, result.rank, result.n_calibration) == (np.inf, 10, 9)
    assert "rank 10 of 9" in result.note
    assert "+inf" in result.note
    assert "all labels" in result.note


def test_every_client_counts_in_k_even_an_empty_one():
    scores = np.arange(1.0, 19.0)
    assert calibrate([scores], 0.5).rank == 10
    assert calibrate([scores, [], []], 0.5).rank == 11


def test_no_scores_anywhere_is_a_full_set_in_every_rule():
    for rule in RULES:
        result = calibrate([[], []], 0.1, rule)
        assert result.q_hat == np.inf
        assert result.n_calibration == 0
        assert result.note


@pytest.mark.parametrize(("rule", "q_hat"), [("exact", 1.0), ("average", 2.0), ("tdigest", 1.0)])
def test_alpha_just_below_one_asks_for_the_smallest_score(rule, q_hat):
    result = calibrate([[4.0, 1.0, 2.0], [3.0, 5.0], []], 0.9999999999999, rule)
    assert result.q_hat == q_hat
    assert result.rank == (0 if rule == "average" else 1)


def test_average_by_hand():
    # ⌈0.8 · 10⌉ = 8th of nine, ⌈0.8 · 5⌉ = 4th of four.
    result = calibrate([np.arange(1.0, 10.0)[::-1], [40.0, 10.0, 20.0, 30.0]], 0.2, "average")
    assert result.q_hat == (8.0 + 40.0) / 2
    assert (result.n_calibration, result.clients, result.rank, result.note) == (13, 2, 0, "")


def test_average_clips_small_clients_and_names_them():
    # 1/0.1 − 1 = 9: client 0 has just enough, client 1 too few, client 2 none at all.
    result = calibrate([np.arange(9.0), [5.0, 2.0], []], 0.1, "average")
    assert result.q_hat == (8.0 + 5.0) / 2
    assert "n_k >= 1/alpha - 1 = 9" in result.note
    assert "client 1, 2:" in result.note


def test_average_sends_one_quantile_and_a_count():
    replies = []
    calibrate(
        [np.arange(50.0)],
        0.1,
        "average",
        on_message=lambda direction, client, kind, message: replies.append((direction, message)),
    )
    (_, query), (_, reply) = replies
    assert query["alpha"] == [0.1]
    assert {name: a.shape for name, a in reply.items()} == {"quantile": (1,), "n": (1,)}


def test_average_of_opposite_infinities_is_refused():
    with pytest.raises(DataError, match=r"-inf and \+inf"):
        calibrate([[np.inf], [-np.inf]], 0.5, "average")


@given(client_scores(finite), alphas)
def test_tdigest_is_exact_while_it_holds_every_score(clients, alpha):
    exact, sketched = (calibrate(clients, alpha, rule) for rule in ("exact", "tdigest"))
    assert sketched == exact


@pytest.mark.parametrize("n", [2_000, 100_000])
@pytest.mark.parametrize("clients", [1, 10])
@pytest.mark.parametrize("skew", [1, 8])
def test_tdigest_stays_within_one_centroid_of_the_rank(n, clients, skew):
    """The size limit of a centroid under T-Digest's k2 scale function (Dunning 2021), which
    DataSketches uses: q(1−q)·(4·ln(n/δ) + 24)/δ of all ranks, with δ = 200; an estimate lies
    within the centroid that holds the rank."""
    rng = np.random.default_rng(n + clients)
    scores = (rng.random(n) ** skew).astype(np.float32)
    ordered = np.sort(scores)
    parts = np.array_split(np.sort(scores) if skew > 1 else scores, clients)  # shifted clients too
    for alpha in (0.5, 0.2, 0.1, 0.05, 0.01):
        result = calibrate(parts, alpha, "tdigest")
        q = result.rank / n
        width = q * (1 - q) * (4 * np.log(n / 200) + 24) / 200
        low = np.searchsorted(ordered, result.q_hat, "left") / n
        high = np.searchsorted(ordered, result.q_hat, "right") / n
        assert low - 1 / n <= q + width
        assert high + 1 / n >= q - width


def test_tdigest_sends_bytes_of_a_sketch_not_scores():
    messages = []
    calibrate(
        [np.random.default_rng(0).random(50_000)],
        0.1,
        "tdigest",
        on_message=lambda direction, client, kind, message: messages.append(message),
    )
    assert messages[0] == {}
    assert messages[1]["sketch"].dtype == np.uint8
    assert message_bytes(messages[1]) < 8_000


def test_guarantee_is_claimed_by_exact_alone():
    assert {name: rule.guarantee for name, rule in RULES.items()} == {
        "exact": True,
        "average": False,
        "tdigest": False,
    }
    assert all(rule.name == name for name, rule in RULES.items())


@pytest.mark.parametrize("rule", ["exact", "average", "tdigest"])
def test_nan_is_refused(rule):
    with pytest.raises(DataError, match=r"scores\[1\] is nan"):
        calibrate([[0.0], [0.0, np.nan]], 0.1, rule)


def test_infinite_scores_are_refused_by_tdigest_alone():
    scores = [[1.0, 2.0, -np.inf, np.inf]]
    assert calibrate(scores, 0.5).q_hat == 2.0
    with pytest.raises(DataError, match=r"scores\[2\] is -inf; .* finite"):
        calibrate(scores, 0.5, "tdigest")


def test_wrong_usage_is_refused():
    with pytest.raises(UsageError, match=r"rule is 'median'; .* exact, average, tdigest"):
        calibrate([[1.0]], 0.1, "median")
    with pytest.raises(UsageError, match="scores_by_client is empty"):
        calibrate([], 0.1)
    with pytest.raises(UsageError, match=r"alpha is 1\.0"):
        calibrate([[1.0]], 1.0)
