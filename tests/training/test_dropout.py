import numpy as np
import pytest

from fedcover.training.dropout import Dropout


def rows(count: int, seed: int = 3, client: int = 1):
    return np.full(count, seed), np.full(count, client), np.arange(count)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_rate_is_kept_in_every_unit_and_step(rate):
    dropout = Dropout(*rows(20_000), units=6, rate=rate)
    for step in (0, 1, 1 << 20):
        share = 1 - dropout.kept(step).mean(axis=0)
        assert np.abs(share - rate).max() < 5 * np.sqrt(rate * (1 - rate) / 20_000)


def test_units_nodes_clients_seeds_and_steps_are_independent():
    """Correlations between any two of them stay within five standard errors of 0."""
    base = Dropout(*rows(50_000), units=8, rate=0.5)
    draws = [
        base.kept(0),
        base.kept(1),
        Dropout(*rows(50_000, seed=4), units=8, rate=0.5).kept(0),
        Dropout(*rows(50_000, client=2), units=8, rate=0.5).kept(0),
    ]
    columns = np.concatenate([d.astype(float) for d in draws], axis=1)
    shifted = np.roll(columns, 1, axis=0)
    correlation = np.corrcoef(np.concatenate([columns, shifted], axis=1).T)
    np.fill_diagonal(correlation, 0)
    assert np.abs(correlation).max() < 5 / np.sqrt(50_000)


def test_a_node_has_its_own_mask_wherever_it_stands():
    seeds, clients, nodes = rows(100)
    whole = Dropout(seeds, clients, nodes, units=10, rate=0.5).kept(7)
    some = np.array([42, 3, 99])
    part = Dropout(seeds[some], clients[some], nodes[some], units=10, rate=0.5).kept(7)
    np.testing.assert_array_equal(part, whole[some])
