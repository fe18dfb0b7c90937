"""What of several recipes is trained once, and which names are refused."""

import numpy as np
import pytest

from fedcover.config import Recipe, recipe_of
from fedcover.errors import UsageError
from fedcover.party import calibration


@pytest.fixture
def trained(quick, simulate):
    """``trained(graph, *names, **settings)``: by recipe, every seed's logits of all nodes."""

    def trained(graph, *names, **settings):
        simulation, found = simulate(graph, quick(methods=names, **settings)), {}
        for name in names:
            federations, _ = simulation.train(name)
            found[name] = [
                one.gathered([calibration.logits(party, name) for party in one.parties])
                for one in federations
            ]
        return found

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
        (
            "fed+tuned+tuned",
            r"followed by \+neighbours, .* or \+mix, each once",
        ),
        (
            "fed+corrected",
            r"followed by \+neighbours, .* or \+mix, each once",
        ),
        ("federal+mix", r"one of these with \+neighbours, .* or \+mix"),
        ("fed+tuned+mix", r"\+mix already holds the tuned model"),
        ("loc+tuned", "loc has no model that several clients share"),
    ],
)
def test_what_makes_no_sense_is_said_in_a_sentence(name, sentence):
    with pytest.raises(UsageError, match=sentence):
        recipe_of(name)


def test_common_parts_are_done_once(toy, trained, programs):
    trained(toy, "fed+prior", "fed+prior+mix", "fed+prior+tuned", "fed+mix")
    kinds = [(plan.prior is not None, plan.average) for plan, _ in programs]
    assert kinds == [
        (True, True),
        (True, False),  # tuned
        (False, False),  # local, which both mixtures take
        (False, True),
        (False, False),  # tuned
    ]


def test_features_of_length_one_are_those_of_every_model(toy, trained, programs):
    before = trained(toy, "fed", "fed+mix")
    programs.clear()
    after = trained(toy, "fed", "fed+mix", unit_features=True)
    assert [plan.unit_features for plan, _ in programs] == [True] * 3
    for name, seeds in before.items():
        for plain, scaled in zip(seeds, after[name], strict=True):
            assert not np.allclose(plain, scaled, atol=1e-3)
