"""Gen on a planted graph: two blocks cut apart, features by block."""

import runpy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from fedcover.algorithm.gen import linker, silence
from fedcover.carriers.loopback import Loopback
from fedcover.carriers.stacked import Stacked
from fedcover.config import Config, GenSettings, VaeSettings
from fedcover.errors import DataError
from fedcover.graphs.partition import ClientGraph, Partition
from fedcover.graphs.splits import NO_ROLE, Role
from fedcover.ledger import Ledger, kind_of
from fedcover.party.data import PartyData
from fedcover.party.generated import PROTOTYPES, augmented, prototypes, received
from fedcover.party.party import Party

LINKS = Path(__file__).parents[2] / "benchmarks" / "links.py"
link_quality = runpy.run_path(str(LINKS))["link_quality"]

SIZE, WORDS = 120, 60  # nodes of each client; words of each of the three topics
SETTINGS = GenSettings(prototypes=(2,), shares=(0.05,), linking="global", link_rounds=40)


def topic_rows(rng: np.random.Generator, topics: np.ndarray) -> np.ndarray:
    """Binary features: a node has many of its topic's words and few of the others'."""
    rates = np.full((len(topics), 3 * WORDS), 0.02)
    for row, topic in enumerate(topics):
        rates[row, topic * WORDS : (topic + 1) * WORDS] = 0.3
    return (rng.random(rates.shape) < rates).astype(np.float32)


def party(number: int, x, edges: np.ndarray, y: np.ndarray, roles: np.ndarray) -> PartyData:
    numeric = np.zeros(x.shape[1], dtype=bool)
    return PartyData(str(number), number, 3, x, edges, y, roles, np.zeros(len(y)), numeric)


@pytest.fixture(scope="module")
def planted() -> tuple[list[PartyData], list[ClientGraph], Partition]:
    """Party 0 has topics 0 and 1, party 1 topics 1 and 2; edges join nodes of one topic.

    Only topic 1 is at both parties, so that exactly its nodes lost edges to the cut.
    """
    rng = np.random.default_rng(4)
    topics = np.concatenate([np.arange(SIZE) % 2, 1 + np.arange(SIZE) % 2])
    owner = np.repeat([0, 1], SIZE)
    x = topic_rows(rng, topics)
    pairs = rng.integers(0, 2 * SIZE, size=(2, 40 * SIZE))
    pairs = pairs[:, (topics[pairs[0]] == topics[pairs[1]]) & (pairs[0] != pairs[1])]
    edges = np.unique(np.concatenate([pairs, pairs[::-1]], axis=1), axis=1)
    cut = edges[:, owner[edges[0]] != owner[edges[1]]]
    parts, parties = [], []
    for number in (0, 1):
        inside = edges[:, (owner[edges] == number).all(axis=0)] - number * SIZE
        nodes = np.flatnonzero(owner == number)
        parts.append(ClientGraph(nodes, inside))
        roles = np.full(SIZE, NO_ROLE, dtype=np.int8)
        roles[:60], roles[60:70] = Role.TRAIN, Role.VALID
        roles = rng.permutation(roles)
        parties.append(party(number, sp.csr_array(x[nodes]), inside, topics[nodes], roles))
    return parties, parts, Partition(owner, 2, "given", 0, cut, ("0", "1"))


def generate(
    data: Sequence[PartyData], settings: GenSettings = SETTINGS, *, stacked: bool = True
) -> tuple[list[Party], Ledger]:
    """Parties that have prototypes and a link predictor."""
    config = Config(gen=settings, methods=("gen",), clients=max(len(data), 2))
    parties = [Party(one, config, 3) for one in data]
    talk = linker(config, 3 * WORDS)
    if stacked:
        repetition = Loopback(parties)
        Stacked([repetition]).carry([talk])
        return parties, repetition.ledger
    loopback = Loopback(parties)
    loopback.carry(talk)
    return parties, loopback.ledger


@pytest.fixture(scope="module")
def generated(planted) -> tuple[list[Party], Ledger]:
    return generate(planted[0])


def got(parties: Sequence[Party], m: int = 2):
    return [received(one)[m] for one in parties]


def test_prototypes_land_near_the_features_at_the_far_ends(planted, generated):
    """The prototypes that party 0 got are party 1's topics 1 and 2, not its own topic 0."""
    for number, own_alone in ((0, 0), (1, 2)):
        rows = got(generated[0])[number].features.toarray()
        by_topic = rows.reshape(len(rows), 3, WORDS).sum(axis=2)
        topics = by_topic.argmax(axis=1)
        assert sorted(topics) == sorted({0, 1, 2} - {own_alone})
        # and they have as many words as the receiver's nodes
        stored = planted[0][number].x.nnz / SIZE
        assert (np.count_nonzero(rows, axis=1) <= np.ceil(stored)).all()


def test_links_go_to_the_nodes_that_lost_edges(planted, generated):
    """Far above chance; half of all nodes lost edges."""
    _, parts, partition = planted
    parties, _ = generated
    quality = link_quality(got(parties), parts, partition)
    assert quality.owner > 0.9
    assert quality.boundary > 0.9
    lost = np.unique(partition.cut_edges[1])
    for part, one in zip(parts, parties, strict=True):
        graph = augmented(one, 2, 0.05)
        new = graph.edge_index[:, part.edge_index.shape[1] :]
        linked = part.nodes[new[0][new[0] < graph.own]]
        assert len(linked) == round(0.05 * SIZE * 2)
        assert np.isin(linked, lost).mean() > 0.9


def test_the_features_without_a_topic_give_no_better_links_than_chance(planted):
    """The judgement can fail: with the features shuffled among the nodes, and no edges."""
    data, parts, partition = planted
    rng = np.random.default_rng(0)
    none = np.empty((2, 0), dtype=np.int64)
    shuffled = [replace(one, x=one.x[rng.permutation(SIZE)], edge_index=none) for one in data]
    parties, _ = generate(shuffled)
    assert abs(link_quality(got(parties), parts, partition).boundary - 0.5) < 0.15


def test_nothing_of_a_single_node_is_on_the_ledger(generated):
    assert {kind_of(entry.part) for entry in generated[1]} == {"prototypes", "VGAE weights"}
    for entry in generated[1]:
        assert not entry.shape or entry.shape[0] != SIZE
        if entry.part == PROTOTYPES and entry.direction == "up":
            assert entry.shape == (2, 3 * WORDS)


def test_both_carriers_send_the_same_prototypes_to_the_bit(planted, generated):
    others, ledger = generate(planted[0], stacked=False)
    for one, other in zip(generated[0], others, strict=True):
        mine, theirs = one.knows(PROTOTYPES), other.knows(PROTOTYPES)
        assert mine.keys() == theirs.keys()
        assert all(np.array_equal(mine[name], theirs[name]) for name in mine)
    assert sum(e.bytes * e.rounds for e in ledger) == sum(e.bytes * e.rounds for e in generated[1])


def test_the_same_seed_gives_the_same_links(planted, generated):
    again, _ = generate(planted[0])
    for mine, other in zip(got(generated[0]), got(again), strict=True):
        np.testing.assert_array_equal(mine.latent, other.latent)
        assert (mine.features != other.features).nnz == 0


def test_prototypes_are_made_of_training_nodes_alone(planted):
    """Other features of all other nodes: the same is sent, to the bit."""
    config = Config(gen=replace(SETTINGS, vae=VaeSettings(epochs=5)), methods=("gen",))
    others = [(one.roles != Role.TRAIN)[:, None] for one in planted[0]]
    changed = [
        replace(one, x=sp.csr_array(np.where(other, 1, one.x.toarray()).astype(np.float32)))
        for one, other in zip(planted[0], others, strict=True)
    ]
    before, after = (
        prototypes([Party(one, config, 3) for one in data], 0, [], lambda *_: None)
        for data in (planted[0], changed)
    )
    for mine, same in zip(before, after, strict=True):
        np.testing.assert_array_equal(mine["2"], same["2"])


def test_a_party_alone_receives_nothing_and_keeps_its_graph(planted):
    data, parts, partition = planted
    (alone,), _ = generate(data[:1])
    graph = augmented(alone, 2, 0.05)
    assert graph.generated == 0
    np.testing.assert_array_equal(graph.edge_index, data[0].edge_index)
    judged = link_quality(got([alone]), parts[:1], partition)
    assert all(np.isnan(value) for value in judged)


def test_a_party_with_too_few_training_nodes_sends_nothing_and_still_receives(planted):
    first, second = planted[0]
    roles = second.roles.copy()
    roles[second.nodes(Role.TRAIN)[3:]] = NO_ROLE
    settings = GenSettings(prototypes=(2,), shares=(0.05,), vae=VaeSettings(epochs=3))
    parties, _ = generate([first, replace(second, roles=roles)], settings)
    assert [len(one.owner) for one in got(parties)] == [0, 2]
    assert [augmented(one, 2, 0.05).generated > 0 for one in parties] == [False, True]
    note = silence(Loopback(parties).census, 5)
    assert note.startswith("gen: client 1 has fewer than 5 training nodes and sends no prototypes")
    assert silence(Loopback(parties[:1]).census, 5) == ""


@pytest.mark.parametrize("rate", [1e25, 1e200])
def test_a_link_predictor_that_diverged_is_said_in_a_sentence(planted, rate):
    settings = GenSettings(
        prototypes=(2,), shares=(0.05,), vae=VaeSettings(epochs=2), link_rounds=5, link_lr=rate
    )
    parties, _ = generate(planted[0], settings)
    with pytest.raises(DataError, match=r"The link predictor diverged; scale the features"):
        received(parties[0])
    with pytest.raises(DataError, match=r"training diverged: .* lower the learning rate"):
        generate(planted[0], settings, stacked=False)
