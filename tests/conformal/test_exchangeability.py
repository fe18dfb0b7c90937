import numpy as np
import pytest
from scipy.stats import mannwhitneyu, mood, norm

from fedcover.conformal import permutation_test
from fedcover.conformal.exchangeability import RankSums, pooled_test, rank_sums, rejects
from fedcover.errors import DataError


def dealt(rng, sizes=(40, 60, 30)):
    """Scores of parties that differ, and roles at random inside each."""
    client = np.repeat(np.arange(len(sizes)), sizes)
    scores = rng.random(len(client)) + client
    return scores, client, rng.random(len(client)) < 0.5


def test_a_partys_statistic_is_the_sum_of_wilcoxons_and_moods_squared_z():
    rng = np.random.default_rng(3)
    scores, client, calibrates = dealt(rng)
    found = rank_sums(scores, client, calibrates, rng, 9).observed
    for k in range(3):
        a, b = scores[(client == k) & ~calibrates], scores[(client == k) & calibrates]
        location = mannwhitneyu(a, b, method="asymptotic", use_continuity=False).pvalue
        squared = norm.isf(location / 2) ** 2 + mood(a, b).statistic ** 2
        assert found[k] == pytest.approx(squared, rel=1e-5)


@pytest.mark.parametrize("digits", [1, 6])  # with many ties, and without
def test_both_terms_of_permuted_statistics_have_mean_one(digits):
    rng = np.random.default_rng(4)
    scores, client, calibrates = dealt(rng)
    permuted = rank_sums(scores.round(digits), client, calibrates, rng, 20_000).permuted
    assert permuted.mean(axis=0) == pytest.approx(2, abs=0.06)


def test_scores_that_are_spread_otherwise_are_noticed():
    rng = np.random.default_rng(6)
    scores, client, calibrates = dealt(rng, (150, 150))
    away = (client == 1) & ~calibrates
    scores[away] = 1.5 + 0.5 * np.sign(scores[away] - 1.5)  # half very small, half very large
    found = permutation_test(scores, client, calibrates, rng)
    assert (found.party, found.p_value) == (1, 0.001)


def test_p_values_count_the_permutations_that_are_as_large():
    observed = np.array([3.0, 1.0])
    permuted = np.array([[3.0, 1.0], [5.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    found = pooled_test([RankSums(observed, permuted)])
    assert found.p_value == 3 / 5  # sums 4 and 5 reach 4, and the observed itself
    assert found.by_party.tolist() == [3 / 5, 4 / 5]
    assert (found.party, found.party_p_value) == (0, 3 / 5)
    twice = pooled_test([RankSums(observed, permuted), RankSums(observed, permuted[::-1])])
    assert twice.p_value == 1 / 5  # sums of paired rows: 6, 6, 6, 6 … none reaches 8


def test_a_party_whose_test_nodes_are_stranger_is_named():
    rng = np.random.default_rng(5)
    scores, client, calibrates = dealt(rng, (100, 100, 100, 100))
    scores[(client == 2) & ~calibrates] += 0.4
    found = permutation_test(scores, client, calibrates, rng)
    assert found.party == 2
    assert found.by_party.argmin() == 2
    assert rejects(found.p_value, found.party_p_value)


def test_parties_without_either_kind_of_node_or_with_one_score_say_nothing():
    client = np.array([0, 0, 1, 1, 2, 2])
    calibrates = np.array([True, True, False, False, True, False])
    found = permutation_test(np.zeros(6), client, calibrates, np.random.default_rng(0), 19)
    assert (found.p_value, found.party_p_value) == (1, 1)


def test_the_same_generator_gives_the_same_p_value():
    scores, client, calibrates = dealt(np.random.default_rng(6))
    first, second = (
        permutation_test(scores, client, calibrates, np.random.default_rng(1)) for _ in range(2)
    )
    assert first.p_value == second.p_value


def test_shapes_must_agree():
    with pytest.raises(DataError, match="one entry per node"):
        permutation_test(np.ones(3), [0, 0, 0], np.ones(2, dtype=bool), np.random.default_rng(0))
