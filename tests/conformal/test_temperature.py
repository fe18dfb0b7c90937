import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcover.conformal import (
    averaged_client,
    averaged_server,
    converse,
    fit_temperature,
    message_bytes,
    nll,
    pooled_client,
    pooled_server,
    softmax,
)
from fedcover.errors import DataError, UsageError


def draw(seed, n, temperature, labels=4):
    """Logits whose labels were drawn at the given temperature."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=2.0, size=(n, labels))
    y = np.array([rng.choice(labels, p=p) for p in softmax(logits, temperature)], dtype=np.int64)
    return logits, y


def golden_section(loss, low, high):
    """An independent minimiser that sees values of the loss only, not its slope."""
    shrink = (np.sqrt(5) - 1) / 2
    while high - low > 1e-9:
        a, b = high - shrink * (high - low), low + shrink * (high - low)
        low, high = (low, b) if loss(a) < loss(b) else (a, high)
    return (low + high) / 2


def test_softmax_by_hand():
    np.testing.assert_allclose(softmax([[0.0, np.log(3.0)]]), [[0.25, 0.75]])
    np.testing.assert_allclose(softmax([[0.0, 2 * np.log(3.0)]], 2.0), [[0.25, 0.75]])
    np.testing.assert_array_equal(softmax([[1e5, 0.0]]), [[1.0, 0.0]])


def test_nll_by_hand():
    assert nll([[0.0, np.log(3.0)]] * 2, [0, 1]) == pytest.approx(-np.log(0.25) - np.log(0.75))
    assert nll([[0.0, 1000.0]], [0]) == 1000.0


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_finds_the_minimum_an_independent_search_finds(temperature):
    logits, labels = draw(0, 400, temperature)
    fitted = fit_temperature(logits, labels)
    reference = np.exp(golden_section(lambda t: nll(logits, labels, np.exp(t)), -3.0, 3.0))
    # Values of the loss know their minimum to about the root of the float precision.
    assert fitted == pytest.approx(reference, rel=1e-6)
    assert fitted == pytest.approx(temperature, rel=0.25)


def test_slope_at_the_fitted_temperature_is_zero():
    logits, labels = draw(1, 200, 1.7)
    at = {"beta": np.array([1.0 / fit_temperature(logits, labels)])}
    start = {"beta": np.array([1.0])}
    slope, scale = (pooled_client((logits, labels), q)["slopes"][0] for q in (at, start))
    assert abs(slope) < 1e-8 * abs(scale)


def test_client_sends_the_derivative_of_its_loss():
    logits, labels = draw(2, 30, 1.0)
    beta, step = np.array([0.1, 0.7, 3.0]), 1e-6
    slopes = pooled_client((logits, labels), {"beta": beta})["slopes"]
    numeric = [
        (nll(logits, labels, 1 / (b + step)) - nll(logits, labels, 1 / (b - step))) / (2 * step)
        for b in beta
    ]
    assert slopes.dtype == np.int64  # in units of 2⁻²⁴, so that sums are exact
    np.testing.assert_allclose(slopes / 2.0**24, numeric, rtol=1e-5, atol=1e-6)


def _slope(logits, labels, beta):
    """Of the summed loss in β = 1/T."""
    expected = (softmax(logits, 1 / beta) * logits).sum(axis=1)
    return (expected - logits[np.arange(len(labels)), labels]).sum()


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 6))
def test_pooled_does_not_depend_on_who_holds_the_nodes(seed, n, clients):
    logits, labels = draw(seed, n, 1.5)
    owner = np.random.default_rng(seed).integers(0, clients, n)
    held = [(logits[owner == k], labels[owner == k]) for k in range(clients)]
    pooled = converse(pooled_server(), pooled_client, held)
    alone = fit_temperature(logits, labels)
    # A slope is rounded to 2⁻²⁴ at each client, which moves the zero of their sum a little.
    slack = clients * 2.0**-24
    slope = [_slope(logits, labels, 1 / t) for t in (pooled, alone)]
    assert pooled == pytest.approx(alone, rel=1e-9) or abs(slope[0] - slope[1]) <= slack
    assert nll(logits, labels, pooled) <= nll(logits, labels, alone) + 20 * slack


def test_averaged_is_the_plain_mean_over_clients_with_nodes():
    held = [draw(3, 100, 0.8), draw(4, 300, 2.5), (np.empty((0, 4)), np.empty(0, dtype=np.int64))]
    own = [fit_temperature(*nodes) for nodes in held[:2]]
    assert abs(own[0] - own[1]) > 0.5
    assert converse(averaged_server(), averaged_client, held) == pytest.approx(np.mean(own))


def test_temperature_stays_within_its_limits():
    confident_and_wrong = ([[5.0, 0.0], [0.0, 5.0]], [1, 0])
    assert fit_temperature(*confident_and_wrong) == pytest.approx(20.0)


def test_where_every_node_is_right_no_temperature_is_too_small_and_one_is_kept():
    """The likelihood grows without end as T falls: probabilities of 1 would tie all scores."""
    right, one_wrong = np.array([0, 1, 0]), np.array([0, 1, 1])
    logits = np.array([[5.0, 0.0], [0.0, 5.0], [2.0, 0.0]])
    assert fit_temperature(logits, right) == 1.0
    assert 1.0 < fit_temperature(logits, one_wrong) < 20.0


@pytest.mark.parametrize(
    "pair", [(pooled_server, pooled_client), (averaged_server, averaged_client)]
)
def test_without_information_the_temperature_is_one(pair):
    server, client = pair
    nobody = (np.empty((0, 3)), np.empty(0, dtype=np.int64))
    assert converse(server(), client, [nobody, nobody]) == 1.0
    flat = (np.full((4, 3), 0.1), np.array([0, 1, 2, 0]))
    assert converse(server(), client, [flat]) == 1.0


def test_messages_are_few_and_small():
    up = []
    converse(
        pooled_server(),
        pooled_client,
        [draw(5, 50, 1.5)],
        on_message=lambda direction, client, kind, message: (
            up.append(message) if direction == "up" else None
        ),
    )
    assert len(up) == 4
    assert all(message_bytes(message) == 33 * 8 for message in up)


def test_bad_input_is_refused():
    with pytest.raises(UsageError, match="temperature is 0"):
        softmax([[0.0]], 0.0)
    with pytest.raises(UsageError, match="temperature is -1"):
        nll([[0.0]], [0], -1.0)
    with pytest.raises(DataError, match=r"logits has shape \(2,\)"):
        softmax([0.0, 1.0])
    with pytest.raises(DataError, match=r"logits\[0, 1\] is inf"):
        fit_temperature([[0.0, np.inf]], [0])
    with pytest.raises(DataError, match=r"labels\[0\] is 2"):
        fit_temperature([[0.0, 1.0]], [2])
