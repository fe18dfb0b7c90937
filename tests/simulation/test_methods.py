import numpy as np
import pytest
from fedcover.federation import InProcess, Trained
from fedcover.run.methods import METHODS, Repetition, Setting
from fedcover.run.training import plan_of
from scipy import sparse

from fedcover import Config
from fedcover.config import GenSettings, VaeSettings, recipe_of
from fedcover.graphs import Role, feature_matrix, partition, split


@pytest.fixture
def repetition(toy):
    cut = partition(toy, 3, "random", seed=5)
    return Repetition(toy, cut, split(cut.client, np.random.default_rng(5)), seed=5)


@pytest.fixture
def prepare(quick):
    """``prepare(name, repetition)``: what the method trains on."""

    def prepare(name, repetition):
        gen = GenSettings(
            prototypes=(2, 3),
            shares=(0.1, 0.5),
            vae=VaeSettings(epochs=5, min_cluster=1),
            link_rounds=2,
            screening=2,
        )
        config: Config = quick(gen=gen)
        plan = plan_of(config, 3, recipe_of(name))
        setting = Setting(config, InProcess(), plan, lambda *_: None)
        (prepared,) = METHODS[name].prepare([repetition], setting)
        return prepared

    return prepare


def test_a_seed_sends_the_same_whatever_other_seeds_are_run(toy, quick):
    """At one seed two shares give the same links, at the other they do not."""
    gen = GenSettings(
        prototypes=(4,),
        shares=(0.2, 0.3),  # of 8 prototypes: 2 links a node both times; of 6: 1 and 2
        vae=VaeSettings(epochs=5, min_cluster=1),
        link_rounds=2,
        screening=2,
    )
    config: Config = quick(gen=gen)
    plan = plan_of(config, 3, recipe_of("gen"))

    def prepare(repetitions):
        setting = Setting(config, InProcess(), plan, lambda *_: None)
        return METHODS["gen"].prepare(repetitions, setting)

    def repetition(seed, **options):
        cut = partition(toy, 3, "random", seed=seed)
        roles = split(cut.client, np.random.default_rng(seed), **options)
        return Repetition(toy, cut, roles, seed)

    # With three training nodes a client cannot send four prototypes.
    both = [repetition(5, train=0.2), repetition(6, train=0.1)]
    together = prepare(both)
    apart = [prepare([one])[0] for one in both]
    assert [one.ledger.entries for one in together] == [one.ledger.entries for one in apart]
    spent = [one.ledger.totals()["weights, choice of M and p"]["up"] for one in together]
    assert spent[1] == 2 * spent[0]


def edges_of(parts):
    """The edges of client graphs in the whole graph's numbers."""
    return [pair for part in parts for pair in part.nodes[part.edge_index].T.tolist()]


def test_central_has_every_node_and_edge(repetition, prepare):
    (part,) = prepare("central", repetition).parts
    assert part.nodes.tolist() == list(range(120))
    assert edges_of([part]) == repetition.graph.edge_index.T.tolist()


@pytest.mark.parametrize("name", [name for name in METHODS if name != "central"])
def test_clients_and_cut_edges_make_up_the_graph(repetition, prepare, name):
    parts = prepare(name, repetition).parts
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
def test_a_client_gets_its_own_nodes_and_roles_and_no_generated_node_has_any(
    repetition, prepare, name
):
    prepared = prepare(name, repetition)
    assert prepared.federation.seed == 5
    x = feature_matrix(repetition.graph)
    for part, client in zip(prepared.parts, prepared.federation.clients, strict=True):
        assert client.own == len(part.nodes)
        assert np.array_equal(dense(client.x)[: client.own], x[part.nodes])
        assert client.y[: client.own].tolist() == repetition.graph.y[part.nodes].tolist()
        assert (client.y[client.own :] == -1).all()
        roles = repetition.roles[part.nodes]
        assert client.train.tolist() == np.flatnonzero(roles == Role.TRAIN).tolist()
        assert client.valid.tolist() == np.flatnonzero(roles == Role.VALID).tolist()


@pytest.mark.parametrize("name", ["gen", "fedsage+", "restored"])
def test_an_augmented_graph_keeps_its_edges_and_gains_links_both_ways(repetition, prepare, name):
    prepared = prepare(name, repetition)
    assert sum(client.generated for client in prepared.federation.clients) > 0
    for part, client in zip(prepared.parts, prepared.federation.clients, strict=True):
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


def test_restored_gives_back_every_cut_edge_with_the_features_of_its_far_end(repetition, prepare):
    x, cut = feature_matrix(repetition.graph), repetition.partition.cut_edges
    given = []
    prepared = prepare("restored", repetition)
    for part, client in zip(prepared.parts, prepared.federation.clients, strict=True):
        new = client.edge_index[:, part.edge_index.shape[1] :]
        arriving = new[:, new[0] >= client.own]
        for far, near in arriving.T:
            given.append((tuple(dense(client.x)[far]), int(part.nodes[near])))
    lost = [(tuple(x[far]), int(near)) for far, near in cut.T]
    assert sorted(given) == sorted(lost)


@pytest.mark.parametrize("name", METHODS)
def test_logits_return_to_the_graphs_order_without_the_generated_nodes(repetition, prepare, name):
    prepared = prepare(name, repetition)
    rows = []
    for part, client in zip(prepared.parts, prepared.federation.clients, strict=True):
        numbers = np.concatenate([part.nodes, np.full(client.generated, 999)])
        rows.append(np.stack([numbers, numbers + 0.5], axis=1).astype(np.float32))
    logits = prepared.logits(Trained([], rows, np.zeros(1), 0, 1, 0.0))
    assert logits[:, 0].tolist() == list(range(120))
    assert (logits[:, 1] - logits[:, 0] == 0.5).all()


def test_gen_takes_the_cell_with_the_lowest_validation_loss(repetition, prepare):
    prepared = prepare("gen", repetition)
    grid = prepared.chosen["grid"]
    assert [(c["prototypes"], c["share"]) for c in grid] == [(2, 0.1), (2, 0.5), (3, 0.1), (3, 0.5)]
    best = min(grid, key=lambda cell: cell["valid_loss"])
    assert prepared.chosen["prototypes"] == best["prototypes"]
    losses = {cell["valid_loss"] for cell in grid}
    assert len(losses) > 1
    links = sum(c.edge_index.shape[1] for c in prepared.federation.clients)
    own = sum(part.edge_index.shape[1] for part in prepared.parts)
    per_node = round(prepared.chosen["share"] * 2 * best["prototypes"]) or 1
    assert links - own == 2 * per_node * 120


def test_gens_messages_are_on_the_ledger(repetition, prepare):
    prepared = prepare("gen", repetition)
    kinds = prepared.ledger.totals()
    assert set(kinds) == {
        "prototypes",
        "VGAE weights",
        "weights, choice of M and p",
        "training nodes, choice of M and p",
        "chosen M and p",
        "validation loss, choice of M and p",
    }
    rows = [e for e in prepared.ledger if e.kind == "prototypes" and e.direction == "up"]
    assert all(e.shape[0] <= 3 and e.shape[1] == 6 for e in rows)
    # what goes down to a client is what the others sent up
    assert kinds["prototypes"]["down"] == 2 * kinds["prototypes"]["up"]
