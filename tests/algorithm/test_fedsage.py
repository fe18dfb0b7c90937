"""FedSage+ as a conversation: what travels, graphs mended by it, and what the generators learn."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from fedcover.algorithm.fedsage import mend
from fedcover.algorithm.requests import Ask, Conversation, Keep, Recall
from fedcover.carriers.lockstep import Lockstep
from fedcover.carriers.loopback import Loopback
from fedcover.config import Config, NeighGenSettings
from fedcover.graphs.assemble import undirected
from fedcover.graphs.splits import Role
from fedcover.ledger import Ledger
from fedcover.party.data import PartyData
from fedcover.party.party import Party
from fedcover.training.plan import Federation, PartyGraph

SMALL = NeighGenSettings(latent=7, hidden=9, batch=16, warm_up=3, rounds=2, local_epochs=2)


def make_client(x, edges: Sequence[tuple[int, int]]) -> PartyGraph:
    nodes = x.shape[0]
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    order = np.arange(nodes)
    y = np.zeros(nodes, dtype=np.int64)
    return PartyGraph(x, undirected(pairs, nodes), y, order[: nodes // 2], order[nodes // 2 : -1])


def draw_client(nodes: int, seed: int, features: int = 33, sparse: bool = True) -> PartyGraph:
    rng = np.random.default_rng(seed)
    x = (rng.random((nodes, features)) < 0.1).astype(np.float32)
    x[np.arange(nodes), np.arange(nodes) % features] = 1
    edges = rng.integers(0, nodes, size=(2 * nodes, 2))
    return make_client(sp.csr_array(x) if sparse else x, edges)


def draw_federation(seed: int = 0, sparse: bool = True) -> Federation:
    sizes = (41, 23, 58)
    return Federation([draw_client(n, seed + n, sparse=sparse) for n in sizes], seed)


def parties_of(federation: Federation, options: NeighGenSettings) -> list[Party]:
    config = Config(clients=len(federation.clients), neighgen=options)
    parties = []
    for number, client in enumerate(federation.clients):
        roles = np.full(client.nodes, Role.TEST, dtype=np.int8)
        roles[client.train], roles[client.valid] = Role.TRAIN, Role.VALID
        data = PartyData(
            name=str(number),
            number=number,
            seed=federation.seed,
            x=client.x,
            edge_index=client.edge_index,
            y=client.y,
            roles=roles,
            u=np.zeros(client.nodes),
            numeric=np.ones(client.x.shape[1], dtype=bool),
        )
        parties.append(Party(data, config, 2))
    return parties


def talk(parties: Sequence[Party]) -> Conversation[None]:
    census = Loopback(parties).census
    return mend(parties[0].config.neighgen, parties[0].data.x.shape[1], census)


def mended_by(federation: Federation, parties: Sequence[Party]) -> Federation:
    return Federation([party.made["mended"] for party in parties], federation.seed)


def stacked(
    federations: Sequence[Federation], options: NeighGenSettings = SMALL
) -> tuple[list[Federation], list[Ledger]]:
    repetitions = {f: Loopback(parties_of(one, options)) for f, one in enumerate(federations)}
    stages = []
    lockstep = Lockstep(repetitions, lambda *stage: stages.append(stage))
    lockstep.carry({f: talk(one.parties) for f, one in repetitions.items()})
    assert stages[-1] == ("generator fedsage+", options.rounds, options.rounds)
    mended = [mended_by(federations[f], one.parties) for f, one in repetitions.items()]
    return mended, [one.ledger for one in repetitions.values()]


def looped(federation: Federation, options: NeighGenSettings = SMALL) -> tuple[Federation, Ledger]:
    parties = parties_of(federation, options)
    carrier = Loopback(parties)
    carrier.carry(talk(parties))
    return mended_by(federation, parties), carrier.ledger


def run(federations: Sequence[Federation], options: NeighGenSettings = SMALL) -> list[Federation]:
    return stacked(federations, options)[0]


def dense(x) -> np.ndarray:
    return x.toarray() if sp.issparse(x) else x


def assert_same(one: PartyGraph, other: PartyGraph, exact: bool = True) -> None:
    assert one.generated == other.generated
    np.testing.assert_array_equal(one.edge_index, other.edge_index)
    tolerance = 0 if exact else 1e-4
    np.testing.assert_allclose(dense(one.x), dense(other.x), rtol=0, atol=tolerance)


# What travels


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("changes", [{}, {"cross_weight": 0.0}, {"targets": "nodes"}])
def test_one_party_after_another_gives_the_graphs_and_the_ledger_of_the_stack(sparse, changes):
    federations = [draw_federation(0, sparse), draw_federation(7, sparse)]
    options = replace(SMALL, **changes)
    together, ledgers = stacked(federations, options)
    for federation, mended, ledger in zip(federations, together, ledgers, strict=True):
        alone, own = looped(federation, options)
        assert sorted(map(repr, own)) == sorted(map(repr, ledger))
        for one, other in zip(mended.clients, alone.clients, strict=True):
            assert_same(one, other, exact=False)


def test_the_ledger_holds_every_message_and_none_with_a_row_a_node():
    federation = draw_federation()
    _, (ledger,) = stacked([federation])
    assert {(e.part, e.verb) for e in ledger} == {
        ("fedsage+/mend", verb) for verb in ("generators", "gradients", "mend")
    }
    assert {e.party for e in ledger} == {0, 1, 2}
    weights = {"first": (7, 9), "first_bias": (1, 9), "second": (9, 33), "second_bias": (1, 33)}

    def shapes(verb: str, direction: str) -> dict[str, tuple[int, ...]]:
        entries = [e for e in ledger if (e.verb, e.direction, e.party) == (verb, direction, 0)]
        return {e.array: e.shape for e in entries if e.array not in ("means", "owner")}

    assert shapes("generators", "up") == {k: (1, *shape) for k, shape in weights.items()}
    all_of_them = {k: (3, *shape) for k, shape in weights.items()}
    assert shapes("gradients", "down") == shapes("gradients", "up") == all_of_them
    assert shapes("generators", "down") == shapes("mend", "down") == {**weights, "others": ()}
    assert shapes("mend", "up") == {}
    types = {(e.verb, e.direction): e.type for e in ledger if e.array == "second"}
    assert types == {
        ("generators", "up"): "float32",
        ("gradients", "down"): "float32",
        ("gradients", "up"): "int64",
        ("generators", "down"): "int64",
        ("mend", "down"): "int64",
    }
    sent = [e for e in ledger if e.verb == "gradients" and e.direction == "up"]
    assert {e.rounds for e in sent} == {SMALL.rounds}
    sizes = [c.nodes for c in federation.clients]
    visible = [n - round(n / 2) for n in sizes]
    for entry in ledger:
        assert not set(entry.shape) & {*sizes, *visible}
        if entry.array == "means":
            groups = sum(n // SMALL.min_group for n in visible)
            assert entry.shape[0] <= min(len(sizes) * SMALL.groups, groups)


def test_nothing_is_exchanged_without_the_cross_term_or_others():
    for federation, options in (
        (draw_federation(), replace(SMALL, cross_weight=0.0)),
        (draw_federation(), replace(SMALL, rounds=0)),
        (Federation([draw_client(20, 0)], 0), SMALL),
    ):
        _, (ledger,) = stacked([federation], options)
        assert {(e.verb, e.array) for e in ledger} == {("mend", "others")}


def test_a_coordinator_that_was_killed_asks_again_and_gets_the_same_graphs():
    federation = draw_federation()
    expected, _ = looped(federation)
    parties = parties_of(federation, SMALL)
    kept: list[object] = []
    asked = 0

    class KilledError(Exception):
        """The coordinator's process ends."""

    class Carrier(Loopback):
        def at_once(self, request):
            if isinstance(request, Keep):
                kept.append(request.state())
            return kept[-1] if isinstance(request, Recall) and kept else None

        def ask(self, request):
            nonlocal asked
            found = super().ask(request)
            asked += 1
            if asked in (3, 5):  # after an answer that it has not kept
                raise KilledError
            return found

    carrier = Carrier(parties)
    for _ in range(2):
        with pytest.raises(KilledError):
            carrier.carry(talk(parties))
    carrier.carry(talk(parties))
    assert asked == 8  # five questions; one of them thrice, one twice
    for one, other in zip(expected.clients, mended_by(federation, parties).clients, strict=True):
        assert_same(one, other)


def requests(parties: Sequence[Party]) -> dict[str, tuple[Ask, dict[int, dict[str, np.ndarray]]]]:
    """The first question of every kind, and honest answers."""
    found = {}

    class Carrier(Loopback):
        def ask(self, request):
            replies = {
                party.number: party.answer(
                    request.part, request.verb, request.round, dict(request.query)
                )
                for party in self.parties
                if request.verb != "mend"
            }
            found.setdefault(request.verb, (request, replies))
            return super().ask(request)

    Carrier(parties).carry(talk(parties))
    return found


def test_replies_that_no_honest_party_sends_are_refused():
    federation = Federation([draw_client(41, 1), draw_client(8, 2), draw_client(30, 3)], 0)
    asked = requests(parties_of(federation, SMALL))
    for request, replies in asked.values():
        for number, reply in replies.items():
            assert request.check(number, reply) == ""
            assert sum(array.nbytes for array in reply.values()) <= request.most
    request, replies = asked["generators"]
    good, silent = replies[0], replies[1]
    assert len(silent["means"]) == len(silent["first"]) == 0
    nan = {**good, "first": np.full_like(good["first"], np.nan)}
    assert "not finite" in request.check(0, nan)
    assert "of type float64" in request.check(0, {**good, "means": good["means"].astype(float)})
    assert "of shape (1," in request.check(0, {**silent, "first": good["first"]})
    assert "of shape (0," in request.check(0, {**good, "first": silent["first"]})
    assert "of shape (11," in request.check(0, {**good, "means": np.zeros((11, 7), np.float32)})
    assert "of shape ()" in request.check(0, {**silent, "means": np.zeros((), np.float32)})
    assert "not first" in request.check(0, {})
    request, replies = asked["gradients"]
    good = replies[0]
    huge = {**good, "second": good["second"] + 2**61}
    assert "too large to be added up" in request.check(0, huge)
    assert "of shape (1," in request.check(0, {**good, "first": good["first"][:1]})
    assert "not first" in request.check(0, {})
    request, _ = asked["mend"]
    assert "not nothing" in request.check(0, good)


# Mending


@pytest.mark.parametrize("sparse", [True, False])
def test_a_mended_graph_keeps_everything_and_adds_nodes_of_no_split(sparse):
    federation = draw_federation(sparse=sparse)
    (mended,) = run([federation])
    assert mended.seed == federation.seed
    assert sum(c.generated for c in mended.clients) > 20
    for before, after in zip(federation.clients, mended.clients, strict=True):
        n = before.nodes
        assert after.own == n
        assert sp.issparse(after.x) == sparse
        np.testing.assert_array_equal(dense(after.x)[:n], dense(before.x))
        np.testing.assert_array_equal(after.y[:n], before.y)
        np.testing.assert_array_equal(after.train, before.train)
        np.testing.assert_array_equal(after.valid, before.valid)
        assert (after.y[n:] == -1).all()
        m = before.edge_index.shape[1]
        np.testing.assert_array_equal(after.edge_index[:, :m], before.edge_index)
        more = {tuple(edge) for edge in after.edge_index[:, m:].T}
        assert more == {(t, s) for s, t in more}
        assert all((s < n) != (t < n) for s, t in more)
        own = [min(edge) for edge in more if edge[0] >= n]
        assert len(own) == after.generated  # every generated node has one neighbour
        assert not own or np.bincount(own).max() <= SMALL.most
        made = dense(after.x)[n:]
        assert ((made >= 0) & (made <= 1)).all()
        if sparse:
            assert (np.count_nonzero(made, axis=1) <= round(before.x.nnz / n)).all()


def test_the_same_seed_gives_the_same_graphs_and_another_one_others():
    one, again, other = (
        run([draw_federation()]),
        run([draw_federation()]),
        run([replace(draw_federation(), seed=1)]),
    )
    for a, b in zip(one[0].clients, again[0].clients, strict=True):
        assert_same(a, b)
    made = [np.concatenate([dense(c.x)[c.own :] for c in f[0].clients]) for f in (one, other)]
    assert made[0].shape != made[1].shape or np.abs(made[0] - made[1]).max() > 0.01


LONELY = {
    "one node": make_client(sp.csr_array(np.eye(1, 33, dtype=np.float32)), []),
    "two nodes": make_client(sp.csr_array(np.eye(2, 33, dtype=np.float32)), [(0, 1)]),
    "no edges": replace(draw_client(25, 3), edge_index=np.empty((2, 0), dtype=np.int64)),
    "isolated nodes": make_client(draw_client(25, 3).x, [(0, 1), (0, 2), (1, 2), (3, 4)]),
}


@pytest.mark.parametrize("name", LONELY)
def test_clients_with_little_to_learn_from(name):
    federation = Federation([draw_client(41, 1), LONELY[name]], 0)
    for federations in ([federation], [Federation([LONELY[name]], 0)]):
        (mended,) = run(federations)
        small = mended.clients[-1]
        assert np.isfinite(small.x.data).all()
        if name == "no edges":
            assert small.generated == 0  # it never lost a neighbour


# What the generator learns


def blocks_client(nodes: int, seed: int) -> tuple[PartyGraph, np.ndarray]:
    """Two blocks with features around (1, 0) and (0, 1) in eight columns each; a node of one
    block has neighbours in the other one only, six in the first half and few in the second."""
    rng = np.random.default_rng(seed)
    block = np.arange(nodes) % 2
    centre = np.repeat(np.eye(2), 8, axis=1)
    x = (centre[block] + 0.3 * rng.normal(size=(nodes, 16))).astype(np.float32)
    edges = [(v, u) for v in range(nodes) for u in rng.choice(np.flatnonzero(block != block[v]), 3)]
    return make_client(x, edges), block


def test_generated_features_are_those_of_the_hidden_neighbours_block():
    clients, block = zip(*(blocks_client(60, seed) for seed in range(2)), strict=True)
    options = NeighGenSettings(latent=16, hidden=32, warm_up=60, rounds=5)
    (mended,) = run([Federation(clients, 0)], options)
    for client, of in zip(mended.clients, block, strict=True):
        links = client.edge_index[:, client.edge_index[0] >= client.own]
        made, anchor = client.x[links[0]], links[1]
        assert len(made) > 60
        real = client.x[: client.own]
        means = np.stack([real[of == b].mean(axis=0) for b in (0, 1)])
        distance = np.square(made[:, None] - means[None]).sum(axis=2)
        assert (distance.argmin(axis=1) == 1 - of[anchor]).mean() > 0.95


def test_nodes_that_lose_many_neighbours_get_more_than_those_that_lose_few():
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], 40)
    x = (np.repeat(np.eye(2), 4, axis=1)[group] + 0.1 * rng.normal(size=(80, 8))).astype(np.float32)
    edges = [(v, u) for v in range(40) for u in rng.choice(40, 4)]
    edges += [(40 + 2 * k, 41 + 2 * k) for k in range(20)]
    (mended,) = run(
        [Federation([make_client(x, edges)], 0)], NeighGenSettings(warm_up=100, rounds=0)
    )
    client = mended.clients[0]
    given = client.edge_index[1, client.edge_index[0] >= client.own]
    counts = np.bincount(given, minlength=80)
    assert counts[:40].mean() > 2.5  # about four of eight were hidden
    assert counts[40:].mean() < 1.0  # half of one


def test_the_cross_term_draws_generated_features_towards_the_other_client():
    rng = np.random.default_rng(0)
    edges = [(v, u) for v in range(40) for u in rng.choice(40, 3)]
    near = (0.1 * rng.normal(size=(40, 8))).astype(np.float32)
    far = near + np.float32(2)
    # Half a client's range is enough room, since columns are clipped to what it has seen.
    near[0], far[0] = 2, 0
    federation = Federation([make_client(x, edges) for x in (near, far)], 0)
    distance = []
    for weight in (0.0, 1.0):
        options = NeighGenSettings(latent=8, hidden=16, cross_weight=weight)
        (mended,) = run([federation], options)
        client = mended.clients[0]
        distance.append(np.linalg.norm(client.x[client.own :].mean(axis=0) - 2))
    assert distance[1] < 0.75 * distance[0]
