"""NeighGen piece by piece: hiding and losses by hand, the exchange against autograd, its state."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcover import fixed_point
from fedcover.config import NeighGenSettings
from fedcover.errors import DataError, UsageError
from fedcover.graphs.assemble import undirected
from fedcover.party.neighgen import program as neighgen
from fedcover.party.neighgen.generator import (
    BITS,
    Degrees,
    Generator,
    answering_rows,
    grouped,
    initial_generator,
    noisy_inputs,
    summed_gradients,
)
from fedcover.party.neighgen.hidden import Matching, impair
from fedcover.party.neighgen.program import NeighGens
from fedcover.training.plan import Federation, PartyGraph, Plan
from fedcover.training.receptive_field import Field
from fedcover.training.stack import Parameters, Stack

SMALL = NeighGenSettings(latent=7, hidden=9, batch=16, warm_up=3, rounds=2, local_epochs=2)
KEYS = [(0, 0), (0, 1), (0, 2), (7, 0)]


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


def draw_clients(sparse: bool = True) -> list[PartyGraph]:
    return [draw_client(n, n, sparse=sparse) for n in (41, 23, 58, 30)]


def dense(x) -> np.ndarray:
    return x.toarray() if sp.issparse(x) else x


def squared(one, other) -> torch.Tensor:
    return (one - other).square().sum(dim=-1)


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
    assert not np.isin(part.graph.edge_index, part.hidden).any()
    neighbours = {(s, t) for s, t in client.edge_index.T}
    kept = {(s, t) for s, t in part.graph.edge_index.T}
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
            [Federation([replace(part.graph, x=x)], 0)], Plan("sage", 4, hidden=8, dropout=0.0)
        )
        outputs.append(Field(stack, stack.nodes("train")).logits(weights))
    assert outputs[0].abs().sum() > 0
    assert torch.equal(*outputs)


# Losses


def test_degrees_and_their_loss_by_hand():
    degrees = Degrees(torch.tensor([[1.0, -1.0], [2.0, 0.0]]), torch.tensor([0.5, -1.0]))
    z = torch.tensor([[3.0, 1.0], [0.0, 2.0], [1.5, 9.0]])
    party = torch.tensor([0, 0, 1])
    predicted = degrees.predict(z, party)
    assert predicted.tolist() == [2.5, 0.0, 2.0]  # relu(3 - 1 + .5), relu(-1.5), relu(3 - 1)
    loss = degrees.loss(z, party, torch.tensor([2.0, 3.0, 2.0]))
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
    assert squared(generated, nearest)[0].tolist() == [2.0, 1.0, 37.0]


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
            far = np.square(dense(parts[k].graph.x[lost]) - generated[k, row].numpy()).sum(axis=1)
            loss = squared(generated[k, row], nearest[k, row])
            assert loss.item() == pytest.approx(far.min(), rel=1e-5)


# The exchange


@pytest.mark.parametrize("targets", ["means", "nodes"])
def test_the_summed_replies_are_the_gradient_of_the_whole_sum(targets):
    options, clients, numbers = replace(SMALL, targets=targets), draw_clients(), [0, 1, 3, 4]
    rows = {
        j: answering_rows(client.x, options, np.random.default_rng(j))
        for j, client in zip(numbers, clients, strict=True)
    }
    owner = np.repeat([0, 3, 4], [2, 1, 3])  # party 1 answers, but has no means of its own
    senders = np.unique(owner)
    means = np.random.default_rng(3).normal(size=(6, 7)).astype(np.float32)
    generator = initial_generator([(0, int(i)) for i in senders], options, 33)
    inputs = noisy_inputs(means, owner, options.most, seed=0, round_=1)
    assert inputs[1].tolist() == [10, 5, 15]
    got = summed_gradients(generator, inputs, senders, rows)
    replies = [summed_gradients(generator, inputs, senders, {j: rows[j]}) for j in numbers]
    for place, i in enumerate(senders):
        others = [torch.from_numpy(rows[j]) for j in numbers if j != i]
        assert len(others) == 3
        weights = [t.clone().requires_grad_() for t in generator.of(place)]
        made = Generator(*weights).generate(inputs[0][place : place + 1, : inputs[1][place]])[0]
        whole = sum(squared(made[:, None], t[None]).min(dim=1).values.sum() for t in others)
        for k, gradient in enumerate(torch.autograd.grad(whole, weights)):
            assert gradient.abs().max() > 0.1
            torch.testing.assert_close(got[k][[place]], gradient, rtol=1e-4, atol=1e-4)
            added = sum(fixed_point.encode(reply[k][[place]].numpy(), BITS) for reply in replies)
            decoded = torch.from_numpy(fixed_point.decode(added, BITS)).float()
            torch.testing.assert_close(decoded, gradient, rtol=1e-4, atol=1e-4)


def test_the_noise_depends_on_seed_sender_and_round_alone():
    means = np.ones((3, 7), dtype=np.float32)
    both, _ = noisy_inputs(means, np.array([2, 2, 5]), 4, seed=1, round_=3)
    alone, rows = noisy_inputs(means[2:], np.array([5]), 4, seed=1, round_=3)
    assert rows.tolist() == [4]
    assert torch.equal(both[1, :4], alone[0])
    assert not both[1, 4:].any()
    for seed, round_ in ((2, 3), (1, 4)):
        other, _ = noisy_inputs(means[2:], np.array([5]), 4, seed, round_)
        assert (other - alone).abs().min() > 0


def test_no_answer_and_no_latent_mean_stands_for_fewer_nodes_than_the_minimum():
    rng = np.random.default_rng(0)
    marked = np.eye(60, dtype=np.float32)  # a mean shows its members: 1 / size where they are
    rows = answering_rows(marked, SMALL, rng)
    sizes = np.count_nonzero(rows, axis=1)
    assert 2 <= len(rows) <= 12
    assert sizes.min() >= SMALL.min_group
    assert sizes.sum() == 60
    np.testing.assert_allclose(rows.max(axis=1), 1 / sizes, rtol=1e-6)
    points = rng.normal(size=(60, 4)).astype(np.float32)
    assert np.bincount(grouped(points, 20, 5, rng)).min() >= 5
    assert (grouped(points[:4], 20, 5, rng) == -1).all()
    assert len(answering_rows(sp.csr_array(marked[:4]), SMALL, rng)) == 0
    assert len(answering_rows(marked, replace(SMALL, targets="nodes", target_nodes=7), rng)) == 7


def test_a_party_with_too_few_visible_nodes_sends_neither_means_nor_a_generator():
    program = NeighGens([draw_client(8, 1), draw_client(41, 2)], KEYS[:2], SMALL)
    program.train(3, [])
    few, many = program.sent()
    assert {name: len(array) for name, array in few.items()} == dict.fromkeys(many, 0)
    assert len(many["first"]) == 1
    assert 1 <= len(many["means"]) <= 20 // SMALL.min_group


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
    generator = initial_generator([(0, 0)], replace(SMALL, hidden=64), 33)
    inputs = torch.from_numpy(rng.normal(size=(1, 10, 7))).float()
    for targets in ("nodes", "means"):
        options = replace(SMALL, targets=targets)
        rows = answering_rows(client.x, options, np.random.default_rng(1))
        reply = summed_gradients(generator, (inputs, torch.tensor([10])), np.array([0]), {1: rows})
        leaked = recovered(generator, inputs, reply)
        to_answers = np.abs(leaked[:, None] - rows[None]).max(axis=2).min(axis=1)
        to_nodes = np.abs(leaked[:, None] - client.x.toarray()[None]).max(axis=2).min(axis=1)
        assert to_answers.max() < 1e-3
        assert (to_nodes.max() < 1e-3) if targets == "nodes" else (to_nodes.min() > 0.05)


# The program


def received(program: NeighGens, round_: int) -> list[dict[str, np.ndarray]]:
    """Some gradient for every party that sent a generator."""
    messages = []
    for k, sent in enumerate(program.sent()):
        rng = np.random.default_rng([k, round_])
        weights = {name: sent[name] for name in Generator._fields}
        found = {
            name: fixed_point.encode(rng.normal(size=w.shape[1:]), BITS)
            for name, w in weights.items()
        }
        messages.append({**found, "others": np.array(2)})
    return messages


def assert_same(one: PartyGraph, other: PartyGraph, tolerance: float) -> None:
    assert one.generated == other.generated
    np.testing.assert_array_equal(one.edge_index, other.edge_index)
    np.testing.assert_allclose(dense(one.x), dense(other.x), rtol=0, atol=tolerance)


@pytest.mark.parametrize("sparse", [True, False])
def test_a_party_alone_equals_itself_in_a_stack(sparse):
    clients = draw_clients(sparse)
    stacked = NeighGens(clients, KEYS, SMALL)
    stacked.train(3, [])
    found = received(stacked, 0)
    stacked.train(5, found)
    for k, (client, key) in enumerate(zip(clients, KEYS, strict=True)):
        alone = NeighGens([client], [key], SMALL)
        alone.train(3, [])
        alone.sent()
        alone.train(5, [found[k]])
        for name, array in alone.sent()[0].items():
            np.testing.assert_allclose(array, stacked.sent()[k][name], rtol=0, atol=1e-5)
        assert_same(alone.mended()[0], stacked.mended()[k], 1e-4)


def test_a_program_goes_on_from_its_state_and_never_does_an_epoch_twice():
    client, key = draw_client(41, 5), (0, 3)
    whole, killed = (NeighGens([client], [key], SMALL) for _ in range(2))
    for program in (whole, killed):
        program.train(3, [])
        found = received(program, 0)
        program.train(5, found)
    again = NeighGens([client], [key], SMALL)
    with pytest.raises(DataError, match="lost; mend from the start"):
        again.train(5, found)
    again.restore(killed.state())
    again.train(5, found)  # the question comes again
    for program in (whole, again):
        program.train(7, received(program, 1))
    assert_same(whole.mended()[0], again.mended()[0], 0)


def test_generated_values_may_be_made_in_blocks(monkeypatch):
    program = NeighGens(draw_clients(), KEYS, SMALL)
    program.train(3, [])
    whole = program.mended()
    monkeypatch.setattr(neighgen, "BLOCK", 200)
    for one, other in zip(whole, program.mended(), strict=True):
        assert_same(one, other, 1e-5)


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
    with pytest.raises(UsageError, match=f"^{setting} is .*; it must"):
        NeighGenSettings(**{setting: value})


def test_diverged_training_is_refused_with_its_party():
    client = draw_client(20, 0, sparse=False)
    wild = replace(client, x=np.full_like(client.x, 1e30))
    program = NeighGens([draw_client(20, 0, sparse=False), wild], [(4, 0), (4, 1)], SMALL)
    program.train(3, [])
    for end in (program.sent, program.mended):
        with pytest.raises(DataError, match=r"generator of party 1 diverged \(seed 4\)"):
            end()
