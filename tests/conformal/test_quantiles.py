from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedcover.conformal import (
    RULES,
    Terms,
    calibrate,
    exact_rank,
    message_bytes,
    server_of,
)
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
def test_theorem_1_is_the_pooled_order_statistic_bit_for_bit(clients, alpha):
    pooled = np.sort(np.concatenate(clients) + np.float32(0.0))
    result = calibrate(clients, alpha, "theorem1")
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
def test_theorem_1_does_not_depend_on_who_holds_which_score(data, scores, alpha):
    clients = data.draw(st.integers(1, 5))
    owners = [
        data.draw(hnp.arrays(np.int64, len(scores), elements=st.integers(0, clients - 1)))
        for _ in range(2)
    ]
    first, second = (
        calibrate([scores[o == k] for k in range(clients)], alpha, "theorem1") for o in owners
    )
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
    assert result.q_hat == np.sort(np.concatenate(scores))[38]  # ⌈0.8 · 47⌉ + 1 = 39


def test_rank_above_n_asks_nothing_further_and_says_full_sets():
    asked = []
    result = calibrate(
        [np.arange(8.0), np.arange(1.0)],
        0.1,
        on_message=lambda direction, client, kind, message: asked.append(direction),
    )
    assert asked == ["down", "up"] * 2
    assert (result.q_hat, result.rank, result.n_calibration) == (np.inf, 10, 9)  # ⌈8.1⌉ + 1
    assert "rank 10 of 9" in result.note
    assert "+inf" in result.note
    assert "all labels" in result.note


def test_every_client_counts_in_theorem_1_even_an_empty_one_and_none_in_exact():
    scores = np.arange(1.0, 19.0)
    assert calibrate([scores], 0.5, "theorem1").rank == 10
    assert calibrate([scores, [], []], 0.5, "theorem1").rank == 11
    assert calibrate([scores], 0.5).rank == 10  # one client: ⌈19/2⌉
    assert calibrate([scores, [], []], 0.5).rank == 10
    assert calibrate([scores[:9], scores[9:]], 0.5).rank == 10  # ⌈18/2⌉ + 1
    assert calibrate(np.split(scores, 9), 0.5).rank == 10


@given(st.lists(st.integers(0, 9), min_size=2, max_size=60), st.integers(1, 999))
def test_exact_is_finite_whenever_alpha_times_n_is_one(sizes, thousandths):
    clients = [np.arange(float(size)) for size in sizes]
    finite = np.isfinite(calibrate(clients, thousandths / 1000).q_hat)
    holders, total = sum(size > 0 for size in sizes), sum(sizes)
    assert finite == (thousandths * (total + (holders == 1)) >= 1000)


def test_fifty_sites_with_five_nodes_each_get_finite_sets():
    clients = list(np.random.default_rng(0).random((50, 5)))
    for alpha in (0.05, 0.1, 0.2):
        assert calibrate(clients, alpha).q_hat < 1
        assert calibrate(clients, alpha).rank == round(250 * (1 - alpha) + 0.499) + 1
    assert calibrate(clients, 0.1, "theorem1").q_hat == np.inf  # ⌈0.9 · 300⌉ = 270 of 250


@given(client_scores(values), alphas)
def test_exact_is_not_above_theorem_1_where_its_rank_cannot_be(clients, alpha):
    """⌈(1−α)N⌉ + 1 ≤ ⌈(1−α)(N+K)⌉ for certain where (1−α)K ≥ 1; one client has Theorem 1's."""
    assume(len(clients) == 1 or (1 - alpha) * len(clients) >= 1)
    assert calibrate(clients, alpha).q_hat <= calibrate(clients, alpha, "theorem1").q_hat


def test_no_scores_anywhere_is_a_full_set_in_every_rule():
    for rule in RULES:
        result = calibrate([[], []], 0.1, rule)
        assert result.q_hat == np.inf
        assert result.n_calibration == 0
        assert result.note


@pytest.mark.parametrize(
    ("rule", "q_hat"),
    [("exact", 1.0), ("theorem1", 1.0), ("pooled", 1.0), ("average", 2.0), ("tdigest", 1.0)],
)
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
    exact, sketched = (calibrate(clients, alpha, rule) for rule in ("theorem1", "tdigest"))
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


def test_guarantee_is_claimed_by_exact_and_theorem_1_alone():
    assert {name: rule.guarantee for name, rule in RULES.items()} == {
        "exact": True,
        "theorem1": True,
        "pooled": False,
        "average": False,
        "tdigest": False,
    }


@pytest.mark.parametrize("rule", RULES)
def test_nan_is_refused(rule):
    with pytest.raises(DataError, match=r"scores\[1\] is nan"):
        calibrate([[0.0], [0.0, np.nan]], 0.1, rule)


def test_infinite_scores_are_refused_by_tdigest_alone():
    scores = [[1.0, 2.0, -np.inf, np.inf]]
    assert calibrate(scores, 0.5).q_hat == 2.0
    with pytest.raises(DataError, match=r"scores\[2\] is -inf; .* finite"):
        calibrate(scores, 0.5, "tdigest")


def test_wrong_usage_is_refused():
    with pytest.raises(UsageError, match=r"rule is 'median'; .* exact, theorem1, pooled, average"):
        calibrate([[1.0]], 0.1, "median")
    with pytest.raises(UsageError, match="scores_by_client is empty"):
        calibrate([], 0.1)
    with pytest.raises(UsageError, match=r"alpha is 1\.0"):
        calibrate([[1.0]], 1.0)


# The rule exact for any shares


def fraction(alpha):
    return Fraction(str(alpha))


def smallest(clients, alpha, shares):
    """The definition of q̂, value by value, in fractions."""
    total = sum(map(Fraction, shares))
    held = [(Fraction(p) / total, s) for p, s in zip(shares, clients, strict=True) if len(s) and p]
    v, plus_one = ([p / (len(scores) + more) for p, scores in held] for more in (0, 1))
    other = sum(plus_one) < max(v, default=0)  # it asks for less beyond 1 − α
    wanted = 1 - fraction(alpha) + (0 if other else max(v, default=0))
    v = plus_one if other else v
    for q in sorted({float(s) for scores in clients for s in scores}):
        counts = [sum(s <= q for s in scores) for _, scores in held]
        reached = sum(weight * count for weight, count in zip(v, counts, strict=True))
        if reached > 0 and reached >= wanted:
            return q
    return np.inf


def test_shares_by_hand():
    # A score of client 0 weighs (1/4)/4 = 1/16, one of client 1 (3/4)/4 = 3/16: 3/16 on top.
    easy, hard = [0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]
    # Up to 0, 1, 2, 3: 1/16 … 4/16; up to 4, 5, 6, 7: 7/16, 10/16, 13/16, 1.
    for alpha, q_hat in [(0.375, 6.0), (0.374, 7.0), (0.1875, 7.0), (0.75, 4.0), (0.95, 3.0)]:
        result = calibrate([easy, hard], alpha, shares=[1, 3])
        assert (result.q_hat, result.note) == (q_hat, "")
        assert (result.n_calibration, result.clients, result.rank) == (8, 2, 0)
    assert calibrate([easy, hard], 0.1874, shares=[1, 3]).q_hat == np.inf
    # Only client 1 is asked about: the classical rank of its four, ⌈0.7 · 5⌉.
    assert calibrate([easy, hard], 0.3, shares=[0, 1]).q_hat == 7.0
    assert calibrate([easy, hard], 0.5, shares=[0, 1]).q_hat == 6.0


def test_equal_scores_count_together_and_across_clients():
    # Every score weighs 1/6, and 1/6 is on top; the threes of both clients come at once.
    clients = [[3.0, 3.0, 1.0], [3.0, 3.0, 3.0]]
    for alpha, q_hat in [(0.9999999999999, 1.0), (0.99, 3.0), (0.167, 3.0), (0.166, np.inf)]:
        assert calibrate(clients, alpha, shares=[1, 1]).q_hat == q_hat


whole_shares = st.lists(st.integers(0, 50), min_size=6, max_size=6)


@given(client_scores(finite), alphas, whole_shares)
def test_exact_is_its_definition(clients, alpha, drawn):
    shares = [*drawn[: len(clients) - 1], 1 + drawn[-1]]
    result = calibrate(clients, alpha, shares=shares)
    assert result.q_hat == smallest(clients, alpha, shares)
    assert ("+inf" in result.note) == np.isinf(result.q_hat)


@given(client_scores(values), alphas, st.sampled_from(["none", "counts", "fractions", "floats"]))
def test_the_calibration_nodes_shares_are_the_default_bit_for_bit(clients, alpha, form):
    counts = [len(scores) for scores in clients]
    if not sum(counts):
        return
    shares = {
        "none": None,
        "counts": np.array(counts),
        "fractions": [Fraction(count, sum(counts)) for count in counts],
        "floats": [count / sum(counts) for count in counts],
    }[form]
    assert calibrate(clients, alpha, shares=shares) == calibrate(clients, alpha)


def test_exact_reads_floats_as_the_fractions_they_are_of_large_federations():
    rng = np.random.default_rng(5)
    for _ in range(20):
        sizes = rng.integers(0, 3000, 200)
        scores = np.split(rng.random(sizes.sum()), np.cumsum(sizes)[:-1])
        shares = sizes / sizes.sum()
        for alpha in (0.05, 0.1, 0.18):
            mixed = calibrate(scores, alpha, shares=shares)
            assert mixed.q_hat == calibrate(scores, alpha).q_hat


@given(client_scores(values), whole_shares)
def test_exact_falls_as_alpha_grows(clients, drawn):
    shares = [*drawn[: len(clients) - 1], 1 + drawn[-1]]
    levels = (0.01, 0.05, 0.1, 0.1000001, 0.2, 0.5, 0.9, 0.99)
    q_hats = [calibrate(clients, alpha, shares=shares).q_hat for alpha in levels]
    assert q_hats == sorted(q_hats, reverse=True)


@given(client_scores(values), alphas, whole_shares, st.integers(1, 10**12))
def test_exact_knows_shares_only_up_to_their_scale(clients, alpha, drawn, scale):
    shares = [*drawn[: len(clients) - 1], 1 + drawn[-1]]
    first = calibrate(clients, alpha, shares=shares)
    assert calibrate(clients, alpha, shares=[scale * s for s in shares]) == first


@given(client_scores(values), alphas, hnp.arrays(np.float32, 7, elements=values))
def test_a_client_without_a_share_has_no_say(clients, alpha, strange):
    shares = list(range(1, len(clients) + 1))
    alone = calibrate(clients, alpha, shares=shares)
    joined = calibrate([strange, *clients], alpha, shares=[0, *shares])
    assert np.float32(joined.q_hat).tobytes() == np.float32(alone.q_hat).tobytes()


def test_the_share_of_a_client_without_scores_is_lost_and_it_is_said():
    # One client answers: 19 scores of 0.95/20 each; 18 of them reach 0.855, 19 reach 0.9025.
    clients = [np.arange(1.0, 20.0), []]
    result = calibrate(clients, 0.1, shares=[0.95, 0.05])
    assert result.q_hat == 19.0
    assert result.note == (
        "a share of 0.05 of the nodes asked about is at clients without calibration scores and "
        "counts as never covered, which makes sets larger."
    )
    assert calibrate(clients, 0.1, shares=[1.0, 0.0]).q_hat == 18.0
    assert calibrate(clients, 0.1, shares=[1.0, 0.0]).note == ""
    result = calibrate(clients, 0.1, shares=[0.85, 0.15])
    assert result.q_hat == np.inf
    assert "a share of 0.15" in result.note
    assert result.note.endswith(
        "alpha = 0.1 asks for more than the 19 calibration scores at 2 clients: q_hat is +inf and "
        "every set holds all labels."
    )


def test_all_shares_and_theorem_1_send_the_same():
    rng = np.random.default_rng(0)
    scores = [rng.random(40), rng.random(7)]
    sent = {"exact": [], "theorem1": [], "shares": []}
    for case, messages in sent.items():
        calibrate(
            scores,
            0.2,
            "theorem1" if case == "theorem1" else "exact",
            shares=[40, 7.0] if case == "shares" else None,
            on_message=lambda direction, client, kind, message, to=messages: to.append(
                (direction, client, kind, {name: a.tolist() for name, a in message.items()})
            ),
        )
    assert len(sent["exact"]) == 16
    assert sent["shares"] == sent["exact"]
    assert [(way, k, list(m)) for way, k, _, m in sent["theorem1"]] == [
        (way, k, list(m)) for way, k, _, m in sent["exact"]
    ]
    asked = []
    calibrate(
        [[1.0], [2.0]],
        0.1,
        shares=[1, 1],
        on_message=lambda direction, client, kind, message: asked.append(direction),
    )
    assert asked == ["down", "up"] * 2  # q̂ is +inf after the first round


@pytest.mark.parametrize(
    ("shares", "sentence"),
    [
        ([1, 2, 3], "shares has length 3; it must hold one number for each of the 2 clients."),
        ([1, -0.5], "shares[1] is -0.5; it must be a number of 0 or more."),
        ([np.nan, 1], "shares[0] is nan; it must be a number of 0 or more."),
        ([1, np.inf], "shares[1] is inf; it must be a number of 0 or more."),
        (["1", 1], "shares[0] is '1'; it must be a number of 0 or more."),
        ([True, 1], "shares[0] is True; it must be a number of 0 or more."),
        ([0, 0.0], "shares is 0 for every client; at least one must be above 0."),
        (0.5, "shares is 0.5; it must hold one number for each client."),
    ],
)
def test_wrong_shares_are_refused(shares, sentence):
    with pytest.raises(UsageError) as caught:
        calibrate([[1.0], [2.0]], 0.5, shares=shares)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("rule", [name for name in RULES if name != "exact"])
def test_shares_and_confidence_are_for_exact_alone(rule):
    for name, value in (("shares", [1]), ("confidence", 0.9)):
        sentence = f"{name} is given for the rule '{rule}'; only 'exact' takes it"
        with pytest.raises(UsageError, match=sentence):
            calibrate([[1.0]], 0.5, rule, **{name: value})
        with pytest.raises(UsageError, match=sentence):
            server_of(rule, 0.5, Terms(**{name: value}))


# The rule pooled


@given(client_scores(values), alphas)
def test_pooled_is_what_one_owner_of_all_scores_would_take(clients, alpha):
    pooled, alone = calibrate(clients, alpha, "pooled"), calibrate([np.concatenate(clients)], alpha)
    assert (pooled.q_hat, pooled.rank, pooled.n_calibration) == (
        alone.q_hat,
        alone.rank,
        alone.n_calibration,
    )
    assert pooled.clients == len(clients)
    assert bool(pooled.note) == bool(alone.note)
