"""What each method trains on: the clients' own graphs, and what is added to them."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import sparse

from fedcover.algorithm.session import Outcome
from fedcover.config import METHODS, GenSettings, VaeSettings, recipe_of
from fedcover.graphs import Role, feature_matrix
from fedcover.graphs.partition import ClientGraph
from fedcover.ledger import kind_of, totals
from fedcover.party import calibration
from fedcover.simulation.repetition import Federation, prepare
from fedcover.simulation.run import Simulation

GEN = GenSettings(
    prototypes=(2, 3),
    shares=(0.1, 0.5),
    vae=VaeSettings(epochs=5, min_cluster=1),
    link_rounds=2,
    screening=2,
)


@dataclass
class Trained:
    """One seed's parties with a method's models."""

    name: str
    federation: Federation
    outcome: Outcome

    @property
    def repetition(self):
        return self.federation.repetition

    @property
    def part(self):
        return recipe_of(self.name).models["shared"]

    @property
    def parts(self):
        """Every graph's own nodes, in the whole graph's numbers, and own edges."""
        client = self.repetition.partition.client
        return [
            ClientGraph(
                np.arange(120) if self.name == "central" else np.flatnonzero(client == p.number),
                p.data.edge_index,
            )
            for p in self.federation.parties
        ]

    @property
    def graphs(self):
        """What the shared model is trained on."""
        return [party.graph_of(self.part) for party in self.federation.parties]

    def __iter__(self):
        return iter(zip(self.parts, self.graphs, strict=True))


@pytest.fixture(scope="module")
def trained(toy, quick, simulate):
    """``trained(name)``: the method after its training."""

    def trained(name):
        config = quick(methods=(name,), seeds=1, first_seed=5, rounds=1, gen=GEN)
        (federation,), (outcome,) = simulate(toy, config).train(name)
        return Trained(name, federation, outcome)

    return trained


def test_a_seed_sends_the_same_whatever_other_seeds_are_run(toy, quick):
    """At one seed two shares give the same links, at the other they do not."""
    # Of 8 prototypes: 2 links a node both times; of 6: 1 and 2.
    config = quick(gen=replace(GEN, prototypes=(4,), shares=(0.2, 0.3)))

    def sent(repetitions):
        federations, _ = Simulation(repetitions, config, lambda *_: None).train("gen")
        return [sorted(map(repr, one.carried.ledger)) for one in federations], federations

    # With three training nodes a client cannot send four prototypes.
    both = [
        prepare(toy, replace(config, train=0.2), 5),
        prepare(toy, replace(config, train=0.1), 6),
    ]
    together, federations = sent(both)
    assert together == [entries for one in both for entries in sent([one])[0]]
    spent = [totals(one.carried.ledger.entries)["choice of M and p"]["up"] for one in federations]
    assert spent[0] == 0  # no choice
    assert spent[1] > 0


def edges_of(parts):
    """The edges of client graphs in the whole graph's numbers."""
    return [pair for part in parts for pair in part.nodes[part.edge_index].T.tolist()]


def test_central_has_every_node_and_edge(trained):
    found = trained("central")
    (part,) = found.parts
    assert part.nodes.tolist() == list(range(120))
    assert edges_of([part]) == found.repetition.graph.edge_index.T.tolist()


@pytest.mark.parametrize("name", [name for name in METHODS if name != "central"])
def test_clients_and_cut_edges_make_up_the_graph(trained, name):
    found = trained(name)
    parts, repetition = found.parts, found.repetition
    inside, cut = edges_of(parts), repetition.partition.cut_edges.T.tolist()
    assert cut
    assert sorted(inside + cut) == sorted(repetition.graph.edge_index.T.tolist())
    assert sorted(np.concatenate([part.nodes for part in parts])) == list(range(120))
    for k, part in enumerate(parts):
        assert (repetition.partition.client[part.nodes] == k).all()


def test_only_loc_does_not_average_and_simulations_send_nothing():
    assert {name for name, method in METHODS.items() if not method.average} == {"loc"}
    stay = {name for name, method in METHODS.items() if not method.federated}
    assert stay == {"restored", "central"}
    assert {name for name, method in METHODS.items() if method.simulation} == {"restored"}
    models = {name: method.model for name, method in METHODS.items() if method.model}
    assert models == {"fedsage": "sage", "fedsage+": "sage"}


def dense(x):
    return x.toarray() if sparse.issparse(x) else x


@pytest.mark.parametrize("name", METHODS)
def test_a_client_gets_its_own_nodes_and_roles_and_no_generated_node_has_any(trained, name):
    found = trained(name)
    repetition = found.repetition
    x = feature_matrix(repetition.graph)
    for part, client in found:
        assert client.own == len(part.nodes)
        assert np.array_equal(dense(client.x)[: client.own], x[part.nodes])
        assert client.y[: client.own].tolist() == repetition.graph.y[part.nodes].tolist()
        assert (client.y[client.own :] == -1).all()
        roles = repetition.roles[part.nodes]
        assert client.train.tolist() == np.flatnonzero(roles == Role.TRAIN).tolist()
        assert client.valid.tolist() == np.flatnonzero(roles == Role.VALID).tolist()


@pytest.mark.parametrize("name", ["gen", "fedsage+", "restored"])
def test_an_augmented_graph_keeps_its_edges_and_gains_links_both_ways(trained, name):
    found = trained(name)
    assert sum(client.generated for client in found.graphs) > 0
    for part, client in found:
        own = part.edge_index.shape[1]
        assert np.array_equal(client.edge_index[:, :own], part.edge_index)
        new = client.edge_index[:, own:]
        assert (new[0] != new[1]).all()
        # each new edge has one end among the generated nodes, and its mirror image
        assert ((new >= client.own).sum(axis=0) == 1).all()
        assert sorted(map(tuple, new.T)) == sorted(map(tuple, new[::-1].T))
        assert set(new[new >= client.own]) == set(range(client.own, client.nodes))
        assert (
            len(client.x if isinstance(client.x, np.ndarray) else dense(client.x)) == client.nodes
        )


def test_restored_gives_back_every_cut_edge_with_the_features_of_its_far_end(trained):
    found = trained("restored")
    x = feature_matrix(found.repetition.graph)
    cut, given = found.repetition.partition.cut_edges, []
    for part, client in found:
        new = client.edge_index[:, part.edge_index.shape[1] :]
        arriving = new[:, new[0] >= client.own]
        for far, near in arriving.T:
            given.append((tuple(dense(client.x)[far]), int(part.nodes[near])))
    lost = [(tuple(x[far]), int(near)) for far, near in cut.T]
    assert sorted(given) == sorted(lost)


@pytest.mark.parametrize("name", METHODS)
def test_logits_return_to_the_graphs_order_without_the_generated_nodes(trained, name):
    found = trained(name)
    federation = found.federation
    for party, (part, client) in zip(federation.parties, found, strict=True):
        numbers = np.concatenate([part.nodes, np.full(client.generated, 999)])
        rows = np.stack([numbers, numbers + 0.5], axis=1).astype(np.float32)
        party.has_model(found.part, party.weights[found.part], rows)
    own = [calibration.logits(party, name) for party in federation.parties]
    logits = federation.gathered(own)
    assert logits[:, 0].tolist() == list(range(120))
    assert (logits[:, 1] - logits[:, 0] == 0.5).all()


def test_gen_takes_the_cell_with_the_lowest_validation_loss(trained):
    found = trained("gen")
    chosen = found.outcome.chosen
    grid = chosen["grid"]
    assert [(c["prototypes"], c["share"]) for c in grid] == [(2, 0.1), (2, 0.5), (3, 0.1), (3, 0.5)]
    best = min(grid, key=lambda cell: cell["valid_loss"])
    assert (chosen["prototypes"], chosen["share"]) == (best["prototypes"], best["share"])
    losses = {cell["valid_loss"] for cell in grid}
    assert len(losses) > 1
    links = sum(client.edge_index.shape[1] for client in found.graphs)
    own = sum(part.edge_index.shape[1] for part in found.parts)
    per_node = round(chosen["share"] * 2 * best["prototypes"]) or 1
    assert links - own == 2 * per_node * 120


def test_gen_without_generated_neighbours_is_fed_to_the_bit(toy, quick, simulate):
    config = quick(methods=("gen", "fed"), seeds=2, gen=replace(GEN, shares=(0,)))
    simulation = simulate(toy, config)
    pairs = [simulation.train(name)[0] for name in config.methods]
    for gen, fed in zip(*pairs, strict=True):
        for own, plain in zip(gen.parties, fed.parties, strict=True):
            assert own.graph_of("gen/shared") is own.graph
            np.testing.assert_array_equal(own.logits("gen/shared"), plain.logits("fed/shared"))


def test_the_cell_none_is_trained_on_the_parties_own_graphs(toy, quick, simulate):
    config = quick(methods=("gen", "fed"), seeds=1, gen=replace(GEN, screening=4, shares=(0, 0.5)))
    simulation = simulate(toy, config)
    ((gen,), (chosen,)), (_, (fed,)) = map(simulation.train, config.methods)
    none, *linked = chosen.chosen["grid"]
    # A short training of as many rounds as the long one has: its best loss is Fed's.
    assert none["cell"] == "none"
    assert none["valid_loss"] == pytest.approx(min(fed.models["shared"].losses), abs=1e-4)
    assert all(cell["valid_loss"] != none["valid_loss"] for cell in linked)
    (party, *_) = gen.parties
    assert party.graph_of("gen/cell none") is party.graph
    kinds = {kind_of(entry.part) for entry in gen.carried.ledger if "none" in entry.part}
    assert kinds == {"choice of M and p"}


def test_without_validation_nodes_gen_has_generated_neighbours(make_toy, quick, simulate):
    """Nothing says that Fed is better, and Gen was asked for."""
    roles = np.array([Role.TRAIN, Role.CALIB, Role.TEST])[np.arange(120) % 3]
    graph = make_toy(split=roles)
    config = quick(methods=("gen",), seeds=1, gen=replace(GEN, shares=(0, 0.5)))
    (federation,), (outcome,) = simulate(graph, config).train("gen")
    assert (outcome.chosen["prototypes"], outcome.chosen["share"]) == (2, 0.5)
    assert [cell["valid_loss"] for cell in outcome.chosen["grid"]] == [None] * 3
    assert all(party.graph_of("gen/shared").generated for party in federation.parties)


def test_gens_messages_are_on_the_ledger(trained):
    ledger = trained("gen").federation.carried.ledger
    kinds = totals(ledger.entries)
    assert set(kinds) == {"prototypes", "VGAE weights", "choice of M and p", "weights"}
    rows = [e for e in ledger if e.part == "gen/prototypes" and e.direction == "up"]
    assert len(rows) == 2 * 3  # M and parties
    assert all(e.shape[0] <= 3 and e.shape[1] == 6 for e in rows)
    # What goes down is what all of them sent up, and whose each row is.
    whose = sum(8 * e.shape[0] for e in rows)
    assert kinds["prototypes"]["down"] == 3 * (kinds["prototypes"]["up"] + whose)
    (told,) = (e for e in ledger if e.part == "gen/cell" and e.party == 0)
    assert (told.array, told.direction, told.shape) == ("cell", "down", (2,))
