"""NeighGen's losses by hand, its exchange against autograd, and graphs mended with it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcover.errors import DataError, UsageError
from fedcover.federation import Federation, PartyGraph, Plan
from fedcover.federation.ledger import Ledger
from fedcover.graphs.assemble import undirected
from fedcover.neighbors import fedsage
from fedcover.neighbors.exchange import Exchange, answers, grouped, reply
from fedcover.neighbors.fedsage import mend
from fedcover.neighbors.impair import impair
from fedcover.neighbors.matching import Matching
from fedcover.neighbors.neighgen import (
    Degrees,
    Generator,
    NeighGenSettings,
    degree_loss,
    feature_loss,
    initial_generator,
)
from fedcover.training.receptive_field import Field
from fedcover.training.stack import Parameters, Stack

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


def run(federations: Sequence[Federation], options: NeighGenSettings = SMALL) -> list[Federation]:
    return mend(federations, options, [Ledger() for _ in federations])


def dense(x) -> np.ndarray:
    return x.toarray() if sp.issparse(x) else x


def assert_same(one: PartyGraph, other: PartyGraph, exact: bool = True) -> None:
    assert one.generated == other.generated
    np.testing.assert_array_equal(one.edge_index, other.edge_index)
    tolerance = 0 if exact else 1e-4
    np.testing.assert_allclose(dense(one.x), dense(other.x), rtol=0, atol=tolerance)


# Hiding


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 25), st.floats(0.01, 0.99), st.integers(0, 99))
def test_no_hidden_node_has_an_edge_and_every_lost_neighbour_is_counted(nodes, share, seed):
    client = draw_client(nodes, seed)
    part = impair(client, share, np.random.default_rng(seed))
    assert sorted([*part.hidden, *part.visible]) == list(range(nodes))
    assert len(part.visible) >= 1
    assert (len(part.hidden) >= 1) == (nodes > 1)
    assert abs(len(part.hidden) - share * nodes) <= 1
    assert not np.isin(part.client.edge_index, part.hidden).any()
    neighbours = {(s, t) for s, t in client.edge_index.T}
    kept = {(s, t) for s, t in part.client.edge_index.T}
    assert kept == {e for e in neighbours if not np.isin(e, part.hidden).any()}
    missing = part.missing.toarray()
    for v in range(nodes):
        lost = [(u, v) in neighbours and v in part.visible for u in part.hidden]
        np.testing.assert_array_equal(missing[v], lost)


def test_hidden_features_do_not_reach_the_embeddings():
    rng = np.random.default_rng(2)
    client = replace(draw_client(30, 1), x=rng.normal(size=(30, 6)).astype(np.float32))
    part = impair(client, 0.5, rng)
    other = client.x.copy()
    other[part.hidden] = 5.0
    shapes = [(1, 12, 8), (1, 8), (1, 16, 4), (1, 4)]
    weights = Parameters(*(torch.from_numpy(rng.normal(size=s)).float() for s in shapes))
    outputs = []
    for x in (client.x, other):
        stack = Stack(
            [Federation([replace(part.client, x=x)], 0)], Plan("sage", 4, hidden=8, dropout=0.0)
        )
        outputs.append(Field(stack, stack.nodes("train")).logits(weights))
    assert outputs[0].abs().sum() > 0
    assert torch.equal(*outputs)


# Losses


def test_degrees_and_their_loss_by_hand():
    degrees = Degrees(torch.tensor([[1.0, -1.0], [2.0, 0.0]]), torch.tensor([0.5, -1.0]))
    z = torch.tensor([[3.0, 1.0], [0.0, 2.0], [1.5, 9.0]])
    predicted = degrees.predict(z, torch.tensor([0, 0, 1]))
    assert predicted.tolist() == [2.5, 0.0, 2.0]  # relu(3 - 1 + .5), relu(-1.5), relu(3 - 1)
    loss = degree_loss(predicted, torch.tensor([2.0, 3.0, 2.0]))
    assert loss.tolist() == [0.125, 2.5, 0.0]  # ½·½² near 0, |3| - ½ further away


class Last:
    """In place of a random generator: the last nodes are hidden."""

    def permutation(self, count: int) -> np.ndarray:
        return np.arange(count)[::-1]


def hidden_by_hand():
    """Nodes 0, 1 visible; 0 lost 2 and 3, 1 lost 4. The second client lost nothing."""
    x = np.array([[9, 9], [9, 9], [0, 0], [4, 0], [0, 7]], dtype=np.float32)
    client = make_client(x, [(0, 2), (0, 3), (1, 4), (0, 1)])
    lone = make_client(np.ones((2, 2), dtype=np.float32), [(0, 1)])
    alone = replace(lone, edge_index=lone.edge_index[:, :0])
    parts = [impair(client, 0.6, Last()), impair(alone, 0.5, Last())]  # type: ignore[arg-type]
    assert parts[0].hidden.tolist() == [2, 3, 4]
    return parts


def test_each_generated_vector_meets_its_nodes_nearest_hidden_neighbour():
    matching = Matching(hidden_by_hand(), most=5)
    assert matching.degree.tolist() == [2, 1, 0, 0, 0, 0, 0]
    assert matching.has_pairs.tolist() == [True, False]
    generated = torch.tensor([[[1.0, 1.0], [3.0, 0.0], [1.0, 1.0]], [[5.0, 5.0]] * 3])
    nodes = np.array([[0, 0, 1], [5, 5, 5]])
    nearest = matching.nearest(generated, nodes)
    assert nearest[0].tolist() == [[0, 0], [4, 0], [0, 7]]
    assert feature_loss(generated, nearest)[0].tolist() == [2.0, 1.0, 37.0]


def test_a_node_is_drawn_as_often_as_it_lost_neighbours_up_to_the_most():
    rngs = [np.random.default_rng(k) for k in range(2)]
    drawn = Matching(hidden_by_hand(), most=5).draw(rngs, 3000)
    assert abs((drawn[0] == 0).mean() - 2 / 3) < 0.03
    assert set(drawn[0]) == {0, 1}
    assert set(drawn[1]) == {5}
    drawn = Matching(hidden_by_hand(), most=1).draw(rngs, 3000)
    assert abs((drawn[0] == 0).mean() - 1 / 2) < 0.03


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 999))
def test_matching_equals_a_plain_search(seed):
    rng = np.random.default_rng(seed)
    parts = [impair(draw_client(n, seed), 0.4, rng) for n in (3, 17, 30)]
    matching = Matching(parts, most=3)
    nodes = matching.draw([rng] * 3, 8)
    generated = torch.from_numpy(rng.normal(size=(3, 8, 33))).float()
    nearest = matching.nearest(generated, nodes)
    starts = np.cumsum([0, 3, 17])
    for k in np.flatnonzero(matching.has_pairs):
        for row, v in enumerate(nodes[k] - starts[k]):
            lost = parts[k].hidden[parts[k].missing[[v]].indices]
            far = np.square(dense(parts[k].client.x[lost]) - generated[k, row].numpy()).sum(axis=1)
            loss = feature_loss(generated[k, row], nearest[k, row])
            assert loss.item() == pytest.approx(far.min(), rel=1e-5)


# The exchange


def make_exchange(options: NeighGenSettings, federations: Sequence[Federation] | None = None):
    federations = federations or [draw_federation(0), draw_federation(1)]
    clients = [[replace(c, train=np.arange(c.nodes)) for c in f.clients] for f in federations]
    stack = Stack(
        [Federation(mine, f.seed) for mine, f in zip(clients, federations, strict=True)],
        Plan("sage", options.latent, hidden=options.hidden, dropout=0.0),
    )
    z = torch.from_numpy(np.random.default_rng(3).normal(size=(len(stack.y), options.latent)))
    keys = list(zip(stack.seed_of.tolist(), stack.number_of.tolist(), strict=True))
    generator = initial_generator(keys, options.latent, options.hidden, stack.features)
    return stack, Exchange(stack, options, z.float()), generator, z.float()


@pytest.mark.parametrize("targets", ["means", "nodes"])
def test_the_summed_replies_are_the_gradient_of_the_whole_sum(targets):
    stack, exchange, generator, z = make_exchange(replace(SMALL, targets=targets))
    inputs = exchange.inputs(z, round_=1)
    got = exchange.gradients(generator, z, round_=1)
    for i in range(len(stack.clients)):
        mine = inputs[i : i + 1, : exchange.means[i] * SMALL.most]
        others = [
            torch.from_numpy(exchange.targets[j])
            for j in range(len(stack.clients))
            if j != i and stack.federation_of[j] == stack.federation_of[i]
        ]
        assert len(others) == 2
        weights = [t.clone().requires_grad_() for t in generator.of(i)]
        made = Generator(*weights).generate(mine)[0]
        whole = sum(
            (made[:, None] - other[None]).square().sum(dim=2).min(dim=1).values.sum()
            for other in others
        )
        expected = torch.autograd.grad(whole, weights)
        replies = [reply(generator.of(i), mine, other) for other in others]
        for k, gradient in enumerate(expected):
            assert gradient.abs().max() > 0.1
            torch.testing.assert_close(got[k][i : i + 1], gradient, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(sum(r[k] for r in replies), gradient, rtol=1e-4, atol=1e-4)


def test_no_answer_and_no_latent_mean_stands_for_fewer_nodes_than_the_minimum():
    rng = np.random.default_rng(0)
    marked = np.eye(60, dtype=np.float32)  # a mean shows its members: 1 / size where they are
    rows = answers(marked, SMALL, rng)
    sizes = np.count_nonzero(rows, axis=1)
    assert 2 <= len(rows) <= 12
    assert sizes.min() >= SMALL.min_group
    assert sizes.sum() == 60
    np.testing.assert_allclose(rows.max(axis=1), 1 / sizes, rtol=1e-6)
    points = rng.normal(size=(60, 4)).astype(np.float32)
    assert np.bincount(grouped(points, 20, 5, rng)).min() >= 5
    assert (grouped(points[:4], 20, 5, rng) == -1).all()
    assert len(answers(sp.csr_array(marked[:4]), SMALL, rng)) == 0
    assert len(answers(marked, replace(SMALL, targets="nodes", target_nodes=7), rng)) == 7


def recovered(generator: Generator, inputs: torch.Tensor, gradient: Generator) -> np.ndarray:
    """What the server can solve for: it knows the generator, its inputs and the reply.

    The last layer's gradient is Hᵀ·2(X̃ - T) with known H and X̃; H has a left inverse as long as
    there are no more inputs than hidden units.
    """
    hidden = torch.baddbmm(generator.first_bias, inputs, generator.first).relu()[0].double()
    error = torch.linalg.pinv(hidden.T) @ gradient.second[0].double()
    return (generator.generate(inputs)[0].double() - error / 2).numpy()


def test_a_reply_about_single_nodes_gives_them_away_and_one_about_means_gives_means():
    """The reason for ``targets="means"``: a sum over all inputs does not hide its terms."""
    client, rng = draw_client(60, 5), np.random.default_rng(0)
    generator = initial_generator([(0, 0)], 7, 64, 33)
    inputs = torch.from_numpy(rng.normal(size=(1, 10, 7))).float()
    for targets in ("nodes", "means"):
        rows = answers(client.x, replace(SMALL, targets=targets), np.random.default_rng(1))
        leaked = recovered(generator, inputs, reply(generator, inputs, torch.from_numpy(rows)))
        to_answers = np.abs(leaked[:, None] - rows[None]).max(axis=2).min(axis=1)
        to_nodes = np.abs(leaked[:, None] - client.x.toarray()[None]).max(axis=2).min(axis=1)
        assert to_answers.max() < 1e-3
        assert (to_nodes.max() < 1e-3) if targets == "nodes" else (to_nodes.min() > 0.05)


def test_the_ledger_holds_every_message_and_none_with_a_row_a_node():
    federation, ledger = draw_federation(), Ledger()
    mend([federation], SMALL, [ledger])
    kinds = {(e.kind, e.direction) for e in ledger}
    names = ("generator", "latent means", "generator gradient")
    assert kinds == {(name, way) for name in names for way in ("up", "down")}
    assert {e.client for e in ledger} == {0, 1, 2}
    assert all(e.rounds == SMALL.rounds for e in ledger)
    generator = {(7, 9), (1, 9), (9, 33), (1, 33)}
    up = {e.shape for e in ledger if (e.kind, e.direction) == ("generator", "up")}
    assert up == generator
    replies = {e.shape for e in ledger if (e.kind, e.direction) == ("generator gradient", "up")}
    assert replies == {(2, *shape) for shape in generator}  # to two other clients
    sizes = [c.nodes for c in federation.clients]
    visible = [n - round(n / 2) for n in sizes]
    for entry in ledger:
        assert entry.bytes == 4 * np.prod(entry.shape)
        assert not set(entry.shape) & {*sizes, *visible}
        if entry.kind == "latent means":
            groups = sum(n // SMALL.min_group for n in visible)
            assert entry.shape[0] <= min(2 * SMALL.groups, groups)
    totals = ledger.totals()
    for name, once, twice in zip(names, ("up", "up", "down"), ("down", "down", "up"), strict=True):
        assert totals[name][twice] == 2 * totals[name][once]  # two other clients, by the server


def test_nothing_is_exchanged_without_the_cross_term_or_others():
    ledgers = [Ledger(), Ledger()]
    mend([draw_federation()], replace(SMALL, cross_weight=0.0), ledgers[:1])
    mend([Federation([draw_client(20, 0)], 0)], SMALL, ledgers[1:])
    assert [ledger.entries for ledger in ledgers] == [[], []]


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


@pytest.mark.parametrize("sparse", [True, False])
def test_a_client_alone_equals_itself_in_a_stack(sparse):
    options = replace(SMALL, cross_weight=0.0)
    federations = [draw_federation(0, sparse), draw_federation(7, sparse)]
    stacked = run(federations, options)
    for f, federation in enumerate(federations):
        alone = run([Federation(federation.clients[:1], federation.seed)], options)
        assert_same(alone[0].clients[0], stacked[f].clients[0], exact=False)


def test_the_parts_trained_together_do_not_matter(monkeypatch):
    federations = [draw_federation(0), draw_federation(7)]
    rounds: list[int] = []
    mended = mend(federations, SMALL, [Ledger(), Ledger()], rounds.append)
    assert rounds == [1, 2]
    monkeypatch.setattr(fedsage, "TOGETHER", 1)
    monkeypatch.setattr(fedsage, "BLOCK", 200)
    apart = mend(federations, SMALL, [Ledger(), Ledger()], rounds.append)
    assert rounds == [1, 2, 1, 2]
    for one, other in zip(mended, apart, strict=True):
        for a, b in zip(one.clients, other.clients, strict=True):
            assert_same(a, b, exact=False)


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


# What is refused


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("hidden_share", 0.0),
        ("hidden_share", 1),
        ("hidden_share", "half"),
        ("most", 0),
        ("batch", 2.5),
        ("rounds", -1),
        ("latent", True),
        ("min_group", 1),
        ("lr", 0.0),
        ("lr", float("nan")),
        ("cross_weight", -1.0),
        ("degree_weight", float("inf")),
        ("targets", "features"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(setting, value):
    with pytest.raises(UsageError, match=f"^{setting} is .*, but must"):
        NeighGenSettings(**{setting: value})


def test_a_ledger_is_needed_for_each_federation():
    with pytest.raises(UsageError, match="There are 0 ledgers, but must be 1"):
        mend([draw_federation()], SMALL, [])


def test_diverged_training_is_refused_with_its_client():
    client = draw_client(20, 0, sparse=False)
    wild = replace(client, x=np.full_like(client.x, 1e30))
    with pytest.raises(DataError, match="generator of client 0 diverged"):
        run([Federation([wild], 0)])
