"""Thresholds by group: by hand, against one calibration a group, and Theorem 1 inside groups."""

from collections import Counter
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedcover.conformal import (
    calibrate,
    converse,
    coverage_band,
    exact_rank,
    group_client,
    group_quantiles_over_resplits,
    group_server,
    group_thresholds,
)
from fedcover.conformal.order import histogram_client
from fedcover.errors import DataError, UsageError

ALPHAS = (0.1, 0.25, 0.5)
SCORES = [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0]]
GROUPS = [[0, 0, 1, 1], [0, 0, 0]]
values = st.one_of(st.sampled_from([0.0, -0.0, 1.0, 0.25]), st.floats(-1e3, 1e3, width=32))


def test_by_hand():
    first, second, third = group_thresholds(SCORES, GROUPS, 0.5, groups=3)
    # Of 1 2 5 6 7 at two clients the (⌈5/2⌉ + 1)-th; of 3 4 at one the ⌈(2 + 1)/2⌉-th.
    assert (first.q_hat, first.n_calibration, first.clients, first.rank) == (6.0, 5, 2, 4)
    assert (second.q_hat, second.n_calibration, second.clients, second.rank) == (4.0, 2, 1, 2)
    # Nobody has the third: the (⌈7/2⌉ + 1)-th of all.
    assert (third.q_hat, third.n_calibration, third.clients) == (5.0, 0, 0)
    assert [t.fell_back for t in (first, second, third)] == [False, False, True]
    assert [bool(t.note) for t in (first, second, third)] == [False, False, True]


def test_a_group_that_is_too_small_takes_the_pooled_threshold():
    first, second = group_thresholds(SCORES, GROUPS, 0.15)
    # Ranks ⌈0.85 · 5⌉ + 1 of 5 and ⌈0.85 · 3⌉ of 2 do not exist; ⌈0.85 · 7⌉ + 1 of all 7 does.
    assert (first.rank, first.q_hat, first.fell_back) == (6, 7.0, True)
    assert (second.rank, second.q_hat, second.fell_back) == (3, 7.0, True)
    # By the paper's rank, ⌈0.75 · 7⌉ of 5 and ⌈0.75 · 3⌉ of 2 do not exist; ⌈0.75 · 9⌉ of 7 does.
    first, second = group_thresholds(SCORES, GROUPS, 0.25, rule="theorem1")
    assert (first.rank, first.q_hat, first.fell_back) == (6, 7.0, True)
    assert (second.rank, second.q_hat, second.fell_back) == (3, 7.0, True)
    assert "rank 3 of 2 calibration scores at 1 clients" in second.note


def test_where_the_pooled_threshold_is_infinite_so_is_what_stands_in():
    (only,) = group_thresholds([[1.0, 2.0]], [[0, 0]], 0.1)
    assert only.fell_back
    assert only.q_hat == np.inf
    assert "every set holds all labels" in only.note


def test_the_rule_pooled_counts_one_client():
    first, second = group_thresholds(SCORES, GROUPS, 0.25, rule="pooled")
    assert (first.rank, first.q_hat) == (5, 7.0)  # ⌈0.75 · 6⌉ of 5
    assert second.fell_back  # ⌈0.75 · 3⌉ of 2, and ⌈0.75 · 8⌉ of all
    assert second.q_hat == 6.0


def test_four_rounds_for_all_groups_and_no_histogram_of_a_group_that_a_client_lacks():
    sent: list[tuple[str, int, tuple[str, ...]]] = []
    group_thresholds(
        SCORES,
        GROUPS,
        0.5,
        groups=3,
        on_message=lambda way, client, kind, message: sent.append((way, client, tuple(message))),
    )
    up = [(client, names) for way, client, names in sent if way == "up"]
    # Talk 0 is pooled, talk g + 1 is group g's; it ends after a round if its rank is too high.
    assert [names for client, names in up if client == 0] == [
        ("0.counts", "1.counts", "2.counts"),
    ] * 4
    assert [names for client, names in up if client == 1] == [("0.counts", "1.counts")] * 4
    down = [set(names) for way, client, names in sent if way == "down" and client == 0]
    assert all("3.depth" in names for names in down[:1])
    assert not any("3.depth" in names for names in down[1:])
    assert Counter(way for way, _, _ in sent) == {"up": 8, "down": 8}


@st.composite
def federations(draw):
    n, clients = draw(st.integers(1, 40)), draw(st.integers(1, 4))
    groups = draw(st.integers(1, 4))
    return (
        draw(hnp.arrays(np.float32, n, elements=values)),
        draw(hnp.arrays(np.int64, n, elements=st.integers(0, clients - 1))),
        draw(hnp.arrays(np.int64, n, elements=st.integers(0, groups - 1))),
        draw(hnp.arrays(np.bool_, (3, n))),
        clients,
        groups,
    )


def split(array, client, clients, row):
    return [array[row & (client == k)] for k in range(clients)]


def looked_for_one_by_one(local, query):
    """What a client must reply: each group's scores picked out of all, in the order asked."""
    scores, groups = (np.asarray(values) for values in local)
    reply = {}
    for talk in query["asked"].tolist():
        own = scores if talk == 0 else scores[groups == talk - 1]
        if talk == 0 or len(own):
            asked = {name: query[f"{talk}.{name}"] for name in ("depth", "prefix")}
            reply[f"{talk}.counts"] = histogram_client(own, asked)["counts"]
    return reply


def bits(message):
    return [(name, array.dtype, array.shape, array.tobytes()) for name, array in message.items()]


@settings(max_examples=40)
@given(federations(), st.sampled_from(ALPHAS))
def test_every_message_is_as_if_groups_were_looked_for_one_by_one(drawn, alpha):
    scores, client, group, mask, clients, groups = drawn
    held = (split(values, client, clients, mask[0]) for values in (scores, group))
    local = list(zip(*held, strict=True))
    seen = []

    def client(local, query):
        reply = group_client(local, query)
        assert bits(reply) == bits(looked_for_one_by_one(local, query))
        seen.append(reply)
        return reply

    converse(group_server(alpha, groups), client, local)
    assert len(seen) >= clients


class Compared(int):
    """A group's number that counts how often it is compared."""

    times = 0

    def __lt__(self, other):
        Compared.times += 1
        return int(self) < int(other)

    def __eq__(self, other):
        Compared.times += 1
        return int(self) == int(other)

    __hash__ = int.__hash__


def comparisons(groups):
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(np.repeat(range(groups), 5))
    member = np.array([Compared(g) for g in shuffled], dtype=object)
    query = next(group_server(0.1, groups))
    Compared.times = 0
    group_client((rng.random(len(member)), member), query)
    return Compared.times


def test_twice_the_groups_are_twice_the_work():
    small, large = comparisons(100), comparisons(200)
    assert 0 < large < 3 * small  # n log n; all scores for each group would be four times


@settings(max_examples=40)
@given(federations(), st.sampled_from(ALPHAS))
def test_a_group_is_calibrated_as_if_its_holders_were_the_federation(drawn, alpha):
    scores, client, group, mask, clients, groups = drawn
    row = mask[0]
    by_client = split(scores, client, clients, row)
    found = group_thresholds(by_client, split(group, client, clients, row), alpha, groups=groups)
    pooled = calibrate(by_client, alpha)
    for g, own in enumerate(found):
        held = [part for part in split(scores, client, clients, row & (group == g)) if len(part)]
        n = sum(map(len, held))
        assert (own.n_calibration, own.clients) == (n, len(held))
        rank = exact_rank(alpha, n) if len(held) == 1 else exact_rank(alpha, n, 0) + 1
        assert own.fell_back == (n == 0 or rank > n)
        expected = calibrate(held, alpha).q_hat if not own.fell_back else pooled.q_hat
        if own.fell_back and n:
            expected = max(expected, float(np.max(np.concatenate(held))))
        assert own.q_hat == expected


@settings(max_examples=60)
@given(federations(), st.lists(st.floats(0.01, 0.99), min_size=2, max_size=6))
def test_a_smaller_alpha_never_has_a_smaller_threshold(drawn, alphas):
    scores, client, group, mask, clients, groups = drawn
    held = split(scores, client, clients, mask[0]), split(group, client, clients, mask[0])
    found = [
        np.array([own.q_hat for own in group_thresholds(*held, alpha, groups=groups)])
        for alpha in sorted(alphas)
    ]
    assert all((larger <= smaller).all() for smaller, larger in pairwise(found))


def test_a_group_that_fell_back_is_not_left_below_its_own_scores():
    scores, groups = [[*np.arange(40.0), 90.0, 91.0]], [[0] * 40 + [1, 1]]
    level, small = (group_thresholds(scores, groups, alpha)[1] for alpha in (0.4, 0.25))
    assert (level.q_hat, level.fell_back) == (91.0, False)  # ⌈0.6 · 3⌉ of 2
    assert calibrate(scores, 0.25).q_hat == 32.0  # ⌈0.75 · 43⌉ = 33
    assert (small.q_hat, small.fell_back) == (91.0, True)
    assert "its largest score stands in" in small.note


@settings(max_examples=40)
@given(federations(), st.integers(0, 2**32 - 1))
def test_only_counts_and_alpha_decide_who_falls_back(drawn, seed):
    scores, client, group, mask, clients, groups = drawn
    others = np.random.default_rng(seed).normal(size=len(scores))
    parts = split(group, client, clients, mask[0])
    for alpha in ALPHAS:
        one, two = (
            group_thresholds(split(s, client, clients, mask[0]), parts, alpha, groups=groups)
            for s in (scores, others)
        )
        assert [t.fell_back for t in one] == [t.fell_back for t in two]


@pytest.mark.parametrize("rule", ["exact", "theorem1", "pooled"])
@settings(max_examples=40)
@given(federations())
def test_resplits_give_the_bits_of_the_conversation(rule, drawn):
    scores, client, group, mask, clients, groups = drawn
    fast = group_quantiles_over_resplits(
        rule, scores, client, group, mask, ALPHAS, clients=clients, groups=groups
    )
    assert (fast.shape, fast.dtype) == ((len(mask), len(ALPHAS), groups), np.float32)
    for r, row in enumerate(mask):
        held = split(scores, client, clients, row), split(group, client, clients, row)
        for a, alpha in enumerate(ALPHAS):
            slow = group_thresholds(*held, alpha, groups=groups, rule=rule)
            expected = np.array([t.q_hat for t in slow], np.float32)
            assert fast[r, a].tobytes() == expected.tobytes()


def test_resplits_count_groups_and_clients_themselves():
    scores, client, group = np.arange(6.0), np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 1] * 2)
    mask = np.ones((1, 6), bool)
    found = group_quantiles_over_resplits("exact", scores, client, group, mask, [0.5])
    # 0 1 3 4 and 2 5, each at two clients: ranks 2 + 1 of 4 and 1 + 1 of 2.
    assert found.tolist() == [[[3.0, 5.0]]]


def test_by_client_is_everyones_own_calibration():
    rng = np.random.default_rng(0)
    scores = [rng.random(n) for n in (9, 30, 8)]
    found = group_thresholds(scores, [np.full(len(s), k) for k, s in enumerate(scores)], 0.1)
    own = [calibrate([s], 0.1).q_hat for s in scores]
    assert [t.q_hat for t in found[:2]] == own[:2]
    assert own[2] == np.inf  # eight scores are too few for 0.1
    assert found[2].fell_back
    assert found[2].q_hat == calibrate(scores, 0.1).q_hat < np.inf
    assert [t.clients for t in found] == [1, 1, 1]


def mean_coverage(alpha, sizes, *, fell_back):
    """Of a group's test node, drawn from its holders in proportion to n_k; fractions, no luck.

    Every holder has n_k + 1 nodes of the group, each of them the test node with the same
    probability. The other group's scores, and a client without the group, must not matter, unless
    the group falls back: then the others are all lower.
    """
    n, clients = sum(sizes), len(sizes)
    rng = np.random.default_rng(list(sizes))
    order = rng.permutation(n + clients).astype(float)
    bags = np.split(order, np.cumsum([size + 1 for size in sizes])[:-1])
    others = [rng.random(40) * 20 - 21 * fell_back for _ in range(clients + 1)]
    covered = Fraction(0)
    choices = list(product(*(range(len(bag)) for bag in bags)))
    for chosen in choices:
        kept = [np.delete(bag, i) for bag, i in zip(bags, chosen, strict=True)]
        kept.append(np.empty(0))
        scores = [np.concatenate([a, b]) for a, b in zip(kept, others, strict=True)]
        groups = [np.repeat([0, 1], [len(a), len(b)]) for a, b in zip(kept, others, strict=True)]
        own = group_thresholds(scores, groups, alpha)[0]
        assert (own.clients, own.fell_back) == (clients, fell_back)
        for bag, i in zip(bags, chosen, strict=True):
            covered += Fraction(len(bag) - 1, n) * int(bag[i] <= own.q_hat)
    return float(covered / len(choices))


@pytest.mark.parametrize(
    ("alpha", "sizes"),
    [(0.5, (3, 1)), (0.35, (3, 1)), (0.5, (2, 2, 1)), (0.2, (5,)), (0.35, (5,)), (0.4, (1, 4))],
)
def test_theorem_1_inside_a_group_over_every_choice_of_test_nodes(alpha, sizes):
    mean = mean_coverage(alpha, sizes, fell_back=False)
    low, high = coverage_band(alpha, sizes)
    assert low <= mean + 1e-12
    assert mean <= high + 1e-12


@pytest.mark.parametrize("sizes", [(4,), (3, 1), (2, 2, 1)])
def test_a_group_that_fell_back_keeps_the_level_that_its_counts_carry(sizes):
    n, clients = sum(sizes), len(sizes)
    mean = mean_coverage(0.15, sizes, fell_back=True)
    assert mean >= 1 - 1 / (n + (clients == 1)) - 1e-12
    assert mean < 0.85 or clients > 1  # one client does not keep what was asked for


@pytest.mark.parametrize("rule", ["average", "tdigest"])
def test_rules_without_groups_are_refused(rule):
    sentence = f"rule is '{rule}', .* it must be one of exact, theorem1, pooled."
    with pytest.raises(UsageError, match=sentence):
        group_thresholds(SCORES, GROUPS, 0.1, rule=rule)
    with pytest.raises(UsageError, match=sentence):
        group_quantiles_over_resplits(rule, [1.0], [0], [0], np.ones((1, 1), bool), [0.1])


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(UsageError, match="scores of 2 clients and groups of 1"):
        group_thresholds(SCORES, GROUPS[:1], 0.1)
    with pytest.raises(UsageError, match="scores of 0 clients"):
        group_thresholds([], [], 0.1)
    with pytest.raises(DataError, match=r"groups_by_client\[1\] has shape \(2,\); it must be \(3,"):
        group_thresholds(SCORES, [GROUPS[0], [0, 0]], 0.1)
    with pytest.raises(DataError, match=r"groups_by_client\[0\]\[2\] is 1; it must lie in 0 … 0"):
        group_thresholds(SCORES, GROUPS, 0.1, groups=1)
    with pytest.raises(UsageError, match="alpha is 1"):
        group_thresholds(SCORES, GROUPS, 1.0)
    with pytest.raises(DataError, match=r"group\[0\] is -1"):
        group_quantiles_over_resplits("exact", [1.0], [0], [-1], np.ones((1, 1), bool), [0.1])
