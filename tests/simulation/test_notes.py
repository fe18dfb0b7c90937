"""What a run says aloud: an own split can void the guarantee, or leave nothing to choose on."""

import copy
import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse

import fedcover
from fedcover import UsageError
from fedcover.config import BEST, BEST_LINKED, PersonalSettings
from fedcover.config.settings import DEFAULT_METHODS
from fedcover.graphs import Role, partition
from fedcover.party.data import known_edges
from fedcover.simulation.evaluation import Judge
from fedcover.simulation.repetition import prepare, settled


def divided(make_toy, counts: dict[int, tuple[int, int, int, int]], names=("north", "south")):
    """A toy graph with client and split columns: train, valid, calib and test nodes by client."""
    client = np.concatenate([np.full(sum(c), k) for k, c in counts.items()])
    roles = np.concatenate([np.repeat(np.arange(4), c) for c in counts.values()])
    return make_toy(len(client), client=client, client_names=list(names), split=roles)


def notes(graph, quick, **changes) -> list[str]:
    config = quick(partition="given", clients=None, methods=("fed",), seeds=1, **changes)
    return fedcover.run(graph, config).info["notes"]


def test_a_split_that_spreads_test_nodes_otherwise_is_not_covered_by_the_theorem(make_toy, quick):
    skewed = divided(make_toy, {0: (20, 5, 70, 10), 1: (20, 5, 10, 70)})
    (note,) = notes(skewed, quick, quantiles=("theorem1",), alphas=(0.1,))
    apart = 70 / 80 - 10 / 80
    assert f"total variation {apart:.2f}" in note
    assert "the promise is for clients counted by their calibration nodes" in note
    assert notes(skewed, quick, quantiles=("exact",), alphas=(0.3,)) == []


def test_an_even_split_says_nothing(make_toy, quick):
    even = divided(make_toy, {0: (20, 5, 40, 40), 1: (20, 5, 45, 45)})
    assert notes(even, quick, quantiles=("exact",), alphas=(0.1,)) == []


def test_no_validation_nodes_are_mentioned(make_toy, quick):
    bare = divided(make_toy, {0: (20, 0, 40, 40), 1: (20, 0, 45, 45)})
    assert int(Role.VALID) not in bare.split.tolist()
    (note,) = notes(bare, quick, quantiles=("exact",), alphas=(0.1,))
    assert "no validation nodes" in note


def test_a_note_about_clients_tells_their_names(make_toy, quick):
    small = divided(make_toy, {0: (20, 5, 40, 40), 1: (20, 5, 4, 4)})
    found = notes(small, quick, quantiles=("average",), alphas=(0.1,))
    assert any("too few at client 1" in n and "1 is south" in n for n in found)


def test_a_temperature_at_its_bound_is_mentioned(toy, quick, given_outputs):
    judge = Judge(prepare(toy, quick(), seed=0), quick())

    def said(logits):
        return judge.evaluate(*given_outputs(judge.repetition, judge.config, logits)).notes

    wrong = 1e4 * np.eye(3, dtype=np.float32)[(toy.y.numpy() + 1) % 3]
    assert any("stopped at its bound, 20" in n for n in said(wrong))
    sound = np.eye(3, dtype=np.float32)[(toy.y.numpy() + (np.arange(len(toy.y)) % 4 == 0)) % 3]
    assert not any("bound" in n for n in said(sound))


def test_notes_are_logged_each_once(make_toy, quick, caplog):
    bare = divided(make_toy, {0: (20, 0, 40, 40), 1: (20, 0, 45, 45)})
    found = notes(bare, quick, quantiles=("exact",), alphas=(0.1,))
    assert found
    assert caplog.record_tuples == [("fedcover", logging.WARNING, note) for note in found]


def test_where_there_is_nothing_to_note_nothing_is_logged(make_toy, quick, caplog):
    even = divided(make_toy, {0: (20, 5, 40, 40), 1: (20, 5, 45, 45)})
    assert notes(even, quick, quantiles=("exact",), alphas=(0.1,)) == []
    assert caplog.records == []


@pytest.mark.parametrize("kind", [sparse.csr_array, np.asarray])
def test_features_that_nobody_scaled_are_mentioned(make_toy, toy, quick, kind):
    x = toy.x.numpy().copy()
    x[0, 0] = -3e4
    if kind is sparse.csr_array:
        x[1:] = 0
    raw = make_toy(x=kind(x))
    config = quick(methods=("fed",), scores=("lac",), quantiles=("exact",), seeds=1)

    def said(**changes) -> list[str]:
        notes = fedcover.run(raw, replace(config, **changes)).info["notes"]
        return [note for note in notes if note.startswith("features are as large as 30000 and are")]

    assert len(said()) == 1
    assert said(standardise=True) == said(standardise=False) == said(unit_features=True) == []


@pytest.fixture
def shared(make_toy):
    """A toy graph of three clients, who know the edges between them as parties' folders say."""
    graph = make_toy(client=np.arange(120) % 3, client_names=["p", "q", "r"])
    graph.linked = True
    return graph


def test_where_clients_know_edges_the_default_recipe_takes_them_and_says_so(shared, quick):
    config = quick(partition="given", clients=None, seeds=1, methods=DEFAULT_METHODS)
    linked = settled(config, shared)
    assert (linked.cut_edges, linked.methods) == ("known", ("loc", "fed", BEST_LINKED, "central"))
    assert settled(replace(config, cut_edges="unknown"), shared).methods == DEFAULT_METHODS
    assert settled(replace(config, methods=("fed", BEST)), shared).methods == ("fed", BEST)
    assert settled(replace(config, partition="random", clients=3), shared).cut_edges == "unknown"
    quickly = replace(config, personal=PersonalSettings(tune_rounds=1, local_rounds=1))
    found = fedcover.run(shared, quickly).info["notes"]
    assert sum(f"the default recipe is {BEST_LINKED}" in note for note in found) == 1


def test_links_that_are_not_used_are_said(shared, quick):
    shared.listed_once, shared.absent = {"p and q": 2}, {"s": 1}
    first, second = notes(shared, quick, quantiles=("exact",), alphas=(0.3,))
    assert first.startswith("2 links are listed by one party alone and not used")
    assert second == "1 link is not used: there is no folder of s (1)."


def test_neighbours_without_links_are_refused(toy, shared, quick):
    asking = quick(methods=("fed+neighbours",))
    with pytest.raises(UsageError, match="needs edges between clients that both ends know"):
        fedcover.run(toy, asking)
    with pytest.raises(UsageError, match="are between its own clients, which --partition given"):
        fedcover.run(shared, asking)


def test_known_edges_are_the_same_part_of_more(toy, quick):
    parts = partition(toy, 3, "random")

    def known(share: float, **changes) -> set[tuple[int, int]]:
        config = quick(cut_edges="known", known_share=share, **changes)
        return set(map(tuple, known_edges(toy, parts, config, 0).T.tolist()))

    some, more, every = known(0.2), known(0.7), known(1.0)
    assert some < more < every
    assert len(some) == 2 * round(0.2 * len(every) / 2)
    assert every == set(map(tuple, parts.cut_edges.T.tolist()))
    assert {(b, a) for a, b in more} == more
    assert known_edges(toy, parts, quick(), 0) is None


def test_keys_tell_of_no_other_edge(toy, quick):
    toy = copy.copy(toy)
    toy.client, toy.client_names = torch.arange(120) % 3, ["p", "q", "r"]
    parts = partition(toy, None, "given")
    (a, b), (c, d), (e, f) = parts.cut_edges[:, :3].T.tolist()
    keys = dict.fromkeys(range(120))
    toy.match_keys = list((keys | {a: "k", b: "k", c: "l" if c != a else "k", e: None}).values())
    toy.linked = True
    config = quick(partition="given", clients=None, cut_edges="known")
    found = known_edges(toy, parts, config, 0).T.tolist()
    assert [a, b] in found
    assert all(toy.match_keys[x] == toy.match_keys[y] is not None for x, y in found)
    assert len(found) < parts.cut_edges.shape[1]
    assert [d, f] not in found
