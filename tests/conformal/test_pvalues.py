import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcover.conformal import (
    calibrate,
    group_p_values,
    group_thresholds,
    p_values,
    prediction_sets,
    rule_weights,
)
from fedcover.errors import UsageError

ALPHAS = (0.01, 0.05, 0.1, 0.125, 0.2, 0.25, 1 / 3, 0.5, 0.6, 0.75, 0.9, 0.99)
# Few values tie often, many hardly ever.
CLIENTS = st.sampled_from([3, 10**6]).flatmap(
    lambda top: st.lists(
        st.lists(st.integers(0, top).map(float), max_size=12), min_size=1, max_size=4
    )
)


def numbers(clients):
    return [len(own) for own in clients]


def asked(clients):
    """Scores below, at, between and above all calibration scores."""
    held = sorted({score for own in clients for score in own})
    return np.array([[-1.0, *held, *(score + 0.5 for score in held), np.inf]], np.float32)


def test_one_client_by_hand():
    found = p_values([[0.5, 1.0, 2.5, 9.0]], [[1.0, 2.0, 3.0]], rule_weights("exact", [3]))
    np.testing.assert_array_equal(found, [[1.0, 1.0, 0.5, 0.25]])  # 4/4, 4/4, 2/4, 1/4


def test_unequal_weights_and_an_extra_by_hand():
    # v = 1/4, 1/2 and e = 1/2: H(2.5-) = 1/4 + 0, H(9-) = 2/4 + 1/2.
    found = p_values([1.0, 2.5, 9.0], [[1.0, 3.0], [4.0]], ([1, 2], 4, 2))
    np.testing.assert_array_equal(found, [1.0, 1.0, 0.5])


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("rule", ["exact", "theorem1", "pooled"])
@given(clients=CLIENTS)
def test_the_set_of_every_level_is_the_labels_with_p_above_alpha(rule, weighed, clients):
    shares = [k + 1 for k in range(len(clients))] if weighed and rule == "exact" else None
    scores = asked(clients)
    found = p_values(scores, clients, rule_weights(rule, numbers(clients), shares))
    for alpha in ALPHAS:
        q_hat = calibrate(clients, alpha, rule, shares=shares).q_hat
        np.testing.assert_array_equal(found > alpha, prediction_sets(scores, q_hat))


@pytest.mark.parametrize("rule", ["exact", "pooled"])
@given(clients=CLIENTS, data=st.data())
def test_groups_with_thresholds_of_their_own(rule, clients, data):
    member = [np.array(data.draw(st.lists(st.integers(0, 1), min_size=len(own), max_size=len(own))),
                       dtype=int) for own in clients]  # fmt: skip
    scores = asked(clients)
    pooled = p_values(scores, clients, rule_weights(rule, numbers(clients)))
    for g in (0, 1):
        held = [np.array(own)[of == g] for own, of in zip(clients, member, strict=True)]
        found = group_p_values(scores, held, rule, pooled)
        for alpha in ALPHAS:
            q_hat = group_thresholds(clients, member, alpha, groups=2, rule=rule)[g].q_hat
            np.testing.assert_array_equal(found > alpha, prediction_sets(scores, q_hat))


def test_a_rule_without_p_values_and_a_missing_weight_are_refused():
    with pytest.raises(UsageError, match="'average', which has no p-values"):
        rule_weights("average", [3])
    with pytest.raises(UsageError, match="1 weights and calibration scores of 2 clients"):
        p_values([[1.0]], [[1.0], [2.0]], ([1], 4, 0))
