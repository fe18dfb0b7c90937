import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from fedcover.errors import DataError
from fedcover.graphs import load, partition
from fedcover.graphs.labels import NO_LABEL


@pytest.fixture(scope="module")
def cora():
    return load("cora")


def skewed(graph, clients, beta, seed=0):
    return partition(graph, clients, "label-skew", seed, beta).client


def table(graph, client):
    """Nodes by label and client."""
    pairs = graph.y.numpy() * (client.max() + 1) + client
    shape = (len(graph.label_names), client.max() + 1)
    return np.bincount(pairs, minlength=shape[0] * shape[1]).reshape(shape)


def test_the_seed_and_beta_decide_and_nothing_else(cora):
    first = skewed(cora, 10, 0.5, seed=3)
    assert np.array_equal(first, partition(cora, 10, "label-skew", 3).client)  # the default
    assert not np.array_equal(first, skewed(cora, 10, 0.5, seed=4))
    assert not np.array_equal(first, skewed(cora, 10, 0.6, seed=3))


@pytest.mark.parametrize("beta", [0.2, 0.5, 4.0])
def test_shares_have_the_mean_and_the_variance_of_dirichlets(make_graph, beta):
    clients, labels, each = 4, 300, 100
    names = list(map(str, range(labels)))
    graph = make_graph(labels * each, y=np.arange(labels * each) % labels, label_names=names)
    shares = table(graph, skewed(graph, clients, beta, seed=1)) / each
    assert shares.sum(axis=1) == pytest.approx(1)
    expected = stats.dirichlet([beta] * clients)
    error = np.sqrt(expected.var() / labels)
    assert (abs(shares.mean(axis=0) - 1 / clients) < 4 * error).all()  # whole nodes favour nobody
    assert shares.var(axis=0).mean() == pytest.approx(expected.var()[0], rel=0.1)


def test_the_smaller_beta_the_further_clients_labels_are_from_the_graphs(cora):
    def distance(beta):
        """The mean total variation over clients and seeds."""
        found = []
        for seed in range(5):
            by_client = table(cora, skewed(cora, 10, beta, seed))
            whole = by_client.sum(axis=1, keepdims=True) / by_client.sum()
            found.append(abs(by_client / by_client.sum(axis=0) - whole).sum(axis=0).mean() / 2)
        return np.mean(found)

    distances = [distance(beta) for beta in (0.1, 0.5, 2.0, 1000.0)]
    assert distances == sorted(distances, reverse=True)
    assert distances[0] > 0.5
    assert distances[-1] < 0.05


def test_which_nodes_of_a_label_a_client_gets_is_drawn(make_graph):
    client = skewed(make_graph(2000, y=np.repeat([0, 1], 1000)), 2, 1000.0)
    assert client[:500].mean() == pytest.approx(0.5, abs=0.1)  # not one client, then the other


@pytest.mark.parametrize("beta", [0.5, 1.0, 10.0])
def test_a_hundred_clients_of_cora(cora, beta):
    sizes = np.bincount(skewed(cora, 100, beta), minlength=100)
    assert len(sizes) == 100
    assert sizes.min() >= 2485 // 400
    assert sizes.sum() == 2485


def test_nodes_without_a_label_are_spread_evenly(make_graph):
    y = np.where(np.arange(1200) < 200, np.arange(1200) % 2, NO_LABEL)
    graph = make_graph(1200, y=y)
    client = skewed(graph, 4, 0.2)
    assert np.bincount(client[y == NO_LABEL]).tolist() == [250] * 4
    assert np.ptp(np.bincount(client[y != NO_LABEL])) > 1
    assert client[-250:].tolist() != sorted(client[-250:])  # at random, too


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    y=st.lists(st.integers(NO_LABEL, 1), min_size=6, max_size=80),
    clients=st.integers(1, 6),
    beta=st.floats(0.01, 1e6),
    seed=st.integers(0, 2**31 - 2),
)
def test_every_client_has_enough_labelled_nodes_or_the_division_is_refused(
    make_graph, y, clients, beta, seed
):
    y = np.array([0, 1, *y])
    graph, labelled = make_graph(len(y), y=y), y != NO_LABEL
    least = max(1, min(10, labelled.sum() // (4 * clients)))
    try:
        client = skewed(graph, clients, beta, seed)
    except DataError:
        assert beta < 10 or least == 1  # an even spread is refused only where nodes are few
        return
    assert np.bincount(client[labelled], minlength=clients).min() >= least
    assert np.ptp(np.bincount(client[~labelled], minlength=clients)) <= 1
    assert client.shape == y.shape
    assert client.max() < clients


def test_a_skew_that_leaves_a_client_without_data_is_refused(cora):
    with pytest.raises(DataError) as caught:
        skewed(cora, 100, 0.01)
    assert str(caught.value) == (
        "Partition 'label-skew' with beta 0.01 left one of 100 clients of cora with fewer than 6 "
        "labelled nodes in each of 1,000 draws; take a larger beta or fewer clients."
    )
