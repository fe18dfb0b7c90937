"""What of several recipes is trained once, and which names are refused."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from fedcover.federation import InProcess
from fedcover.run.training import Trainer

from fedcover.config import Recipe, recipe_of
from fedcover.errors import UsageError
from fedcover.simulation.repetition import prepare


@dataclass
class Witness(InProcess):
    """Trains as usual, and remembers the plans."""

    plans: list = field(default_factory=list)

    def train(self, federations, plan, *, start=None, on_round=None):
        self.plans.append(plan)
        return super().train(federations, plan, start=start, on_round=on_round)


@pytest.fixture
def trained(quick):
    """``trained(graph, *names, **settings)``: the outcomes by recipe, and the witness."""

    def trained(graph, *names, **settings):
        config, witness = quick(methods=names, **settings), Witness()
        repetitions = [prepare(graph, config, seed) for seed in config.seed_range]
        trainer = Trainer(repetitions, config, witness, 3, lambda *_: None, lambda _: None)
        return {name: trainer.outcomes(recipe_of(name)) for name in names}, witness

    return trained


@pytest.mark.parametrize(
    ("name", "recipe", "spelt"),
    [
        ("fed+mix+prior", Recipe("fed", prior=True, personal="mix"), "fed+prior+mix"),
        ("fedsage+tuned", Recipe("fedsage", personal="tuned"), "fedsage+tuned"),
        ("fedsage++tuned", Recipe("fedsage+", personal="tuned"), "fedsage++tuned"),
        ("central+prior", Recipe("central", prior=True), "central+prior"),
    ],
)
def test_parts_are_read_in_any_order_and_spelt_in_one(name, recipe, spelt):
    assert recipe_of(name) == recipe
    assert str(recipe) == spelt


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("fed+tuned+tuned", r"followed by \+prox, \+prior, \+tuned or \+mix, each once"),
        ("fed+corrected", r"followed by \+prox, \+prior, \+tuned or \+mix, each once"),
        ("federal+mix", r"one of these with \+prox, \+prior, \+tuned or \+mix"),
        ("fed+tuned+mix", r"\+mix already holds the tuned model"),
        ("loc+tuned", "loc has no model that several clients share"),
    ],
)
def test_what_makes_no_sense_is_said_in_a_sentence(name, sentence):
    with pytest.raises(UsageError, match=sentence):
        recipe_of(name)


def test_common_parts_are_done_once(toy, trained):
    _, witness = trained(toy, "fed+prior", "fed+prior+mix", "fed+prior+tuned", "fed+mix")
    kinds = [(plan.prior is not None, plan.average) for plan in witness.plans]
    assert kinds == [
        (True, True),
        (True, False),  # tuned
        (False, False),  # local, which both mixtures take
        (False, True),
        (False, False),  # tuned
    ]


def test_features_of_length_one_are_those_of_every_model(toy, trained):
    before, _ = trained(toy, "fed", "fed+mix")
    after, witness = trained(toy, "fed", "fed+mix", unit_features=True)
    assert [plan.unit_features for plan in witness.plans] == [True] * 3
    for name, outcomes in before.items():
        for plain, scaled in zip(outcomes, after[name], strict=True):
            assert not np.allclose(plain.logits, scaled.logits, atol=1e-3)
