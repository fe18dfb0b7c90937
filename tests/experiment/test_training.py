"""Recipes with ``+corrected``: how they are read, what is trained, sent and noted."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from fedcover import run
from fedcover.errors import UsageError
from fedcover.experiment.recipes import Recipe, recipe_of
from fedcover.experiment.run import prepare
from fedcover.experiment.training import Trainer
from fedcover.federation import InProcess
from fedcover.graphs import Role
from fedcover.models.vae import VaeSettings
from fedcover.neighbors.settings import GenSettings
from fedcover.personal.correction import hold_out


@dataclass
class Witness(InProcess):
    """Trains as usual, and remembers the federations, the plans and the weights."""

    calls: list = field(default_factory=list)

    def train(self, federations, plan, *, start=None, on_round=None):
        trained = super().train(federations, plan, start=start, on_round=on_round)
        self.calls.append((federations, plan, trained))
        return trained


@pytest.fixture
def corrected(quick):
    """``corrected(graph, *names, **settings)``: the outcomes by recipe, and the witness."""

    def corrected(graph, *names, **settings):
        config, witness = quick(methods=names, **settings), Witness()
        repetitions = [prepare(graph, config, seed) for seed in config.seed_range]
        trainer = Trainer(repetitions, config, witness, 3, lambda *_: None, lambda _: None)
        return {name: trainer.outcomes(recipe_of(name)) for name in names}, witness, repetitions

    return corrected


@pytest.mark.parametrize(
    ("name", "recipe", "spelt"),
    [
        ("fed+corrected", Recipe("fed", personal="corrected"), "fed+corrected"),
        (
            "fed+corrected+prior",
            Recipe("fed", prior=True, personal="corrected"),
            "fed+prior+corrected",
        ),
        ("fedsage+corrected", Recipe("fedsage", personal="corrected"), "fedsage+corrected"),
        ("fedsage++corrected", Recipe("fedsage+", personal="corrected"), "fedsage++corrected"),
        ("loc+corrected", Recipe("loc", personal="corrected"), "loc+corrected"),
        ("central+corrected", Recipe("central", personal="corrected"), "central+corrected"),
    ],
)
def test_corrected_is_a_part_of_a_recipe(name, recipe, spelt):
    assert recipe_of(name) == recipe
    assert str(recipe) == spelt


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("fed+corrected+mix", "corrected keeps training nodes from the model that"),
        ("fed+tuned+corrected", "so it goes with neither"),
        ("fed+corrected+corrected", r"\+prior, \+tuned, \+mix or \+corrected, each once"),
        ("fed+correct", r"followed by \+prox, \+prior, \+tuned"),
        ("federal+corrected", r"one of these with \+prox, \+prior"),
        ("loc+tuned", "loc has no model that several clients share"),
    ],
)
def test_what_makes_no_sense_is_said_in_a_sentence(name, sentence):
    with pytest.raises(UsageError, match=sentence):
        recipe_of(name)


def test_the_base_model_never_sees_what_trains_the_correction(toy, corrected):
    outcomes, witness, _ = corrected(toy, "fed", "fed+corrected")
    (whole, _, _), (bases, plan, models), (corrections, sets, _) = witness.calls
    assert (plan.task, sets.task) == ("labels", "sets")
    for full, base, correction in zip(whole, bases, corrections, strict=True):
        for mine, kept, held in zip(full.clients, base.clients, correction.clients, strict=True):
            np.testing.assert_array_equal(np.sort([*kept.train, *held.train]), np.sort(mine.train))
            assert len(held.train) == len(mine.train) // 3
    for base, correction, model in zip(bases, corrections, models, strict=True):
        assert base.seed == correction.seed
        for client, logits in zip(correction.clients, model.logits, strict=True):
            np.testing.assert_array_equal(client.offset, logits)
    for plain, other in zip(outcomes["fed"], outcomes["fed+corrected"], strict=True):
        assert not np.array_equal(plain.logits, other.logits)


def test_labels_matter_only_where_they_may(make_toy, corrected):
    """Held-out labels never reach the base model, those of calibration and test nodes nothing."""
    roles = np.random.default_rng(3).permutation(np.arange(120) % 4).astype(np.int8)
    graph = make_toy(split=roles)
    before, witness, (repetition, _) = corrected(graph, "fed+corrected")
    federation = witness.calls[0][0][0]
    first = np.flatnonzero(repetition.partition.client == 0)
    used = np.isin(roles[first], [Role.TRAIN])
    held = first[np.setdiff1d(np.flatnonzero(used), federation.clients[0].train)]
    assert len(held) > 0

    def outcome(nodes):
        other = make_toy(split=roles)
        y = other.y.numpy().copy()
        y[nodes] = (y[nodes] + 1) % 3
        other.y = torch.from_numpy(y)
        after, seen, _ = corrected(other, "fed+corrected")
        return seen.calls[0][2][0].logits[0], after["fed+corrected"][0]

    base, plain = witness.calls[0][2][0].logits[0], before["fed+corrected"][0]
    same_base, same = outcome(np.flatnonzero(roles >= Role.CALIB))
    np.testing.assert_array_equal(same_base, base)
    np.testing.assert_array_equal(same.logits, plain.logits)
    assert same.chosen == plain.chosen
    held_base, _ = outcome(held)
    np.testing.assert_array_equal(held_base, base)


def test_what_the_correction_sends_is_in_the_ledger(toy, corrected):
    outcomes, _, _ = corrected(toy, "fed+corrected", personal={"correction_rounds": 6})
    outcome = outcomes["fed+corrected"][0]
    sent, hidden = outcome.ledger.totals(), 16
    numbers = 3 * hidden + hidden + hidden * 3 + 3  # of three probabilities, and of as many logits
    assert sent["weights, correction"] == {"up": 3 * 6 * 4 * numbers, "down": 3 * 6 * 4 * numbers}
    assert sent["training nodes, correction"] == {"up": 3 * 8, "down": 0}
    assert sent["validation loss, correction"] == {"up": 3 * 6 * 16, "down": 0}
    assert sent["best round, correction"]["down"] == 3 * 8
    assert "weights" in sent
    assert 0 <= outcome.chosen["correction_rounds"] <= 6
    assert outcome.chosen["best_round"] >= 1
    assert outcome.seconds > 0


def test_common_parts_are_done_once(toy, corrected):
    _, witness, _ = corrected(
        toy, "fed+prior", "fed+prior+corrected", "fed+prior+tuned", "fed+corrected"
    )
    kinds = [(plan.task, plan.prior is not None, plan.average) for _, plan, _ in witness.calls]
    assert kinds == [
        ("labels", True, True),
        ("labels", True, True),
        ("sets", False, True),  # the prior is in the base model's logits
        ("labels", True, False),
        ("labels", False, True),
        ("sets", False, True),
    ]


def test_features_of_length_one_are_the_models_and_not_the_corrections(toy, corrected):
    names = ("fed", "fed+mix", "fed+corrected")
    before, _, _ = corrected(toy, *names)
    after, witness, _ = corrected(toy, *names, unit_features=True)
    assert [(plan.task, plan.unit_features) for _, plan, _ in witness.calls] == [
        ("labels", True),
        ("labels", True),
        ("labels", True),
        ("labels", True),
        ("sets", False),  # it sees probabilities, which sum to 1
    ]
    for name in names:
        for plain, scaled in zip(before[name], after[name], strict=True):
            assert not np.allclose(plain.logits, scaled.logits, atol=1e-3)


def test_every_method_can_be_corrected(toy, quick):
    names = ("loc", "fed", "gen", "fedsage", "restored", "central")
    gen = GenSettings(
        prototypes=(2,),
        shares=(0.5,),
        link_rounds=2,
        vae=VaeSettings(epochs=5, min_cluster=2),
    )
    methods = tuple(f"{name}+prior+corrected" for name in names)
    quickly = {"quantiles": ("exact",), "scores": ("lac",), "alphas": (0.1,), "gen": gen}
    finished = run(toy, quick(methods=methods, personal={"correction_rounds": 3}, **quickly))
    assert set(finished.results["method"]) == set(methods)
    assert finished.results["set_size"].is_finite().all()
    for method in methods:
        rounds = finished.info["chosen_on_validation"][method]["correction_rounds"]
        assert len(rounds) == 2
        assert all(0 <= kept <= 3 for kept in rounds)


def test_clients_too_small_to_hold_nodes_out_are_noted(make_toy, quick):
    """Two training nodes at each of three clients."""
    roles = np.full(120, Role.CALIB, dtype=np.int8)
    roles[60:] = Role.TEST
    clients = np.arange(120) % 3
    roles[:6], roles[6:36] = Role.TRAIN, Role.VALID
    graph = make_toy(split=roles, client=clients, client_names=["a", "b", "c"])
    config = quick(
        clients=None,
        partition="given",
        methods=("fed", "fed+corrected"),
        quantiles=("exact",),
        seeds=1,
    )
    finished = run(graph, config)
    (note,) = [note for note in finished.info["notes"] if "corrected" in note]
    assert note == (
        "seed 0, fed+corrected: no client has enough training nodes to hold some out, so nothing "
        "is corrected."
    )
    assert not [k for k in finished.info["bytes_by_kind"]["fed+corrected"][0] if "correction" in k]
    sizes = finished.results.pivot("method", index=["score", "alpha"], values="set_size")
    assert sizes["fed"].equals(sizes["fed+corrected"], check_names=False)


def test_the_held_out_nodes_are_those_of_the_settings_share(toy, corrected):
    _, witness, _ = corrected(toy, "fed+corrected", personal={"correction_share": 0.5})
    base, correction = witness.calls[0][0][0], witness.calls[1][0][0]
    for kept, held in zip(base.clients, correction.clients, strict=True):
        assert len(held.train) == (len(kept.train) + len(held.train)) // 2
    _, fed, _ = corrected(toy, "fed")
    parted = hold_out(fed.calls[0][0][0], 0.5)
    np.testing.assert_array_equal(parted.held[1], correction.clients[1].train)
