"""Gen on a planted graph: two blocks cut apart, features by block."""

import numpy as np
import pytest
import scipy.sparse as sp
from fedcover.federation import Federation, InProcess, PartyGraph
from fedcover.federation.ledger import Ledger
from fedcover.neighbors.gen import Generated, generate
from fedcover.neighbors.quality import link_quality

from fedcover.config import GenSettings, VaeSettings
from fedcover.errors import DataError
from fedcover.graphs.partition import ClientGraph, Partition

SIZE, WORDS = 120, 60  # nodes of each client; words of each of the three topics
SETTINGS = GenSettings(prototypes=(2,), shares=(0.05,), linking="global", link_rounds=40)


def topic_rows(rng: np.random.Generator, topics: np.ndarray) -> np.ndarray:
    """Binary features: a node has many of its topic's words and few of the others'."""
    rates = np.full((len(topics), 3 * WORDS), 0.02)
    for row, topic in enumerate(topics):
        rates[row, topic * WORDS : (topic + 1) * WORDS] = 0.3
    return (rng.random(rates.shape) < rates).astype(np.float32)


@pytest.fixture(scope="module")
def planted() -> tuple[Federation, list[ClientGraph], Partition]:
    """Client 0 has topics 0 and 1, client 1 topics 1 and 2; edges join nodes of one topic.

    Only topic 1 is at both clients, so that exactly its nodes lost edges to the cut.
    """
    rng = np.random.default_rng(4)
    topics = np.concatenate([np.arange(SIZE) % 2, 1 + np.arange(SIZE) % 2])
    client = np.repeat([0, 1], SIZE)
    x = topic_rows(rng, topics)
    pairs = rng.integers(0, 2 * SIZE, size=(2, 40 * SIZE))
    pairs = pairs[:, (topics[pairs[0]] == topics[pairs[1]]) & (pairs[0] != pairs[1])]
    edges = np.unique(np.concatenate([pairs, pairs[::-1]], axis=1), axis=1)
    cut = edges[:, client[edges[0]] != client[edges[1]]]
    parts, clients = [], []
    for number in (0, 1):
        inside = edges[:, (client[edges] == number).all(axis=0)] - number * SIZE
        nodes = np.flatnonzero(client == number)
        parts.append(ClientGraph(nodes, inside))
        order = rng.permutation(SIZE)
        clients.append(
            PartyGraph(sp.csr_array(x[nodes]), inside, topics[nodes], order[:60], order[60:70])
        )
    partition = Partition(client, 2, "given", 0, cut, ("0", "1"))
    return Federation(clients, seed=3), parts, partition


@pytest.fixture(scope="module")
def generated(planted) -> tuple[Generated, Ledger]:
    ledger = Ledger()
    (result,) = generate([planted[0]], SETTINGS, InProcess(), [ledger])
    return result, ledger


def test_prototypes_land_near_the_features_at_the_far_ends(planted, generated):
    """The prototypes that client 0 got are client 1's topics 1 and 2, not its own topic 0."""
    federation, _, _ = planted
    for number, own_alone in ((0, 0), (1, 2)):
        got = generated[0].received[2][number]
        rows = got.features.toarray()
        by_topic = rows.reshape(len(rows), 3, WORDS).sum(axis=2)
        topics = by_topic.argmax(axis=1)
        assert sorted(topics) == sorted({0, 1, 2} - {own_alone})
        # and they have as many words as the receiver's nodes
        stored = federation.clients[number].x.nnz / SIZE
        assert (np.count_nonzero(rows, axis=1) <= np.ceil(stored)).all()


def test_links_go_to_the_nodes_that_lost_edges(planted, generated):
    """Far above chance; half of all nodes lost edges."""
    _, parts, partition = planted
    result, _ = generated
    quality = link_quality(result.received[2], parts, partition)
    assert quality.owner > 0.9
    assert quality.boundary > 0.9
    lost = np.unique(partition.cut_edges[1])
    federation = result.augmented(2, 0.05)
    for part, client in zip(parts, federation.clients, strict=True):
        new = client.edge_index[:, part.edge_index.shape[1] :]
        linked = part.nodes[new[0][new[0] < client.own]]
        assert len(linked) == round(0.05 * SIZE * 2)
        assert np.isin(linked, lost).mean() > 0.9


def test_the_features_without_a_topic_give_no_better_links_than_chance(planted):
    """The judgement can fail: with the features shuffled among the nodes, and no edges."""
    federation, parts, partition = planted
    rng = np.random.default_rng(0)
    none = np.empty((2, 0), dtype=np.int64)
    clients = [
        PartyGraph(c.x[rng.permutation(SIZE)], none, c.y, c.train, c.valid)
        for c in federation.clients
    ]
    (result,) = generate([Federation(clients, 3)], SETTINGS, InProcess(), [Ledger()])
    assert abs(link_quality(result.received[2], parts, partition).boundary - 0.5) < 0.15


def test_nothing_of_a_single_node_is_on_the_ledger(planted, generated):
    federation, _, _ = planted
    for entry in generated[1]:
        assert entry.kind in ("prototypes", "VGAE weights")
        assert entry.shape[0] != federation.clients[0].own
        if entry.kind == "prototypes":
            assert entry.shape == (2, 3 * WORDS)


def test_the_same_seed_gives_the_same_links(planted, generated):
    (again,) = generate([planted[0]], SETTINGS, InProcess(), [Ledger()])
    for mine, other in zip(generated[0].received[2], again.received[2], strict=True):
        np.testing.assert_array_equal(mine.latent, other.latent)
        assert (mine.features != other.features).nnz == 0


def test_a_client_alone_receives_nothing_and_keeps_its_graph(planted):
    federation = Federation(planted[0].clients[:1], seed=0)
    (result,) = generate([federation], SETTINGS, InProcess(), [Ledger()])
    (client,) = result.augmented(2, 0.05).clients
    assert client.generated == 0
    np.testing.assert_array_equal(client.edge_index, federation.clients[0].edge_index)


def test_a_client_with_too_few_training_nodes_sends_nothing_and_still_receives(planted):
    first, second = planted[0].clients
    small = PartyGraph(second.x, second.edge_index, second.y, second.train[:3], second.valid)
    settings = GenSettings(prototypes=(2,), shares=(0.05,), vae=VaeSettings(epochs=3))
    (result,) = generate([Federation([first, small], 0)], settings, InProcess(), [Ledger()])
    assert result.silent == [1]
    assert [len(got.owner) for got in result.received[2]] == [0, 2]
    augmented = result.augmented(2, 0.05).clients
    assert [client.generated > 0 for client in augmented] == [False, True]


def test_a_link_predictor_that_diverged_is_said_in_a_sentence(planted):
    settings = GenSettings(
        prototypes=(2,), shares=(0.05,), vae=VaeSettings(epochs=2), link_rounds=5, link_lr=1e25
    )
    with pytest.raises(DataError, match=r"The link predictor diverged; scale the features"):
        generate([planted[0]], settings, InProcess(), [Ledger()])


def test_link_quality_of_a_client_that_received_nothing_is_unknown(planted):
    _, parts, partition = planted
    federation = Federation(planted[0].clients[:1], seed=0)
    (result,) = generate([federation], SETTINGS, InProcess(), [Ledger()])
    assert all(np.isnan(value) for value in link_quality(result.received[2], parts[:1], partition))
