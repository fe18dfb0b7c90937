"""What a recipe's parts may be set to."""

from math import inf, nan

import pytest

from fedcover import Config, UsageError
from fedcover.config import PersonalSettings
from fedcover.plans import plan_of
from fedcover.training.plan import Prior

REFUSED = [
    *(
        (name, value, f"{name} is {value!r}; it must be a whole number of 1 or more.")
        for name in ("tune_rounds", "tune_epochs", "local_rounds")
        for value in (0, -1, 2.5, True, "3", None)
    ),
    *(
        ("prox", value, f"prox is {value!r}; it must be a positive number")
        for value in (0, -0.1, inf, nan, "1", None, True)
    ),
    *(
        ("prior_smoothing", value, f"prior_smoothing is {value!r}; it must be a positive number")
        for value in (0, -1, inf, nan, "1", None, True)
    ),
    *(
        ("prior_strength", value, f"prior_strength is {value!r}; it must lie in 0 … 10")
        for value in (-0.1, inf, nan, "1", None, True)
    ),
    *(
        ("shrinkage", value, f"shrinkage is {value!r}; it must be 0 or more")
        for value in (-1, nan, "1", None, True)
    ),
]


@pytest.mark.parametrize(("name", "value", "sentence"), REFUSED)
def test_what_makes_no_sense_is_refused_in_a_sentence(name, value, sentence):
    with pytest.raises(UsageError) as refused:
        PersonalSettings(**{name: value})
    assert str(refused.value).startswith(sentence)
    assert str(refused.value).endswith(".")


def test_without_smoothing_a_label_would_be_impossible_and_the_sentence_says_so():
    with pytest.raises(UsageError, match="a label that a client never trained on would be imposs"):
        PersonalSettings(prior_smoothing=0)


def test_the_ends_of_the_ranges_are_accepted():
    ends = PersonalSettings(
        prior_smoothing=1e-6, prior_strength=0, tune_rounds=1, local_rounds=1, shrinkage=0
    )
    assert (ends.prior_smoothing, ends.prior_strength) == (1e-6, 0)
    assert PersonalSettings(shrinkage=inf).shrinkage == inf


def test_the_prior_has_the_settings_smoothing_and_strength():
    config = Config(personal={"prior_smoothing": 3.0, "prior_strength": 0.25})
    assert plan_of(config, 7, "fed+prior/shared").prior == Prior(3.0, 0.25)
    assert plan_of(config, 7, "fed/shared").prior is None


def test_the_steps_of_a_recipe_have_plans_of_their_own():
    config = Config(personal={"tune_rounds": 4, "tune_epochs": 2, "local_rounds": 9})
    tuned, local = (plan_of(config, 7, f"fed+prior+mix/{step}") for step in ("tuned", "local"))
    assert (tuned.average, tuned.rounds, tuned.local_epochs) == (False, 4, 2)
    assert tuned.prior is not None
    assert (local.average, local.rounds, local.prior) == (False, 9, None)


def test_a_config_takes_them_as_a_dictionary_too():
    config = Config(personal={"shrinkage": 7.0, "tune_rounds": 2})
    assert config.personal == PersonalSettings(shrinkage=7.0, tune_rounds=2)
    with pytest.raises(UsageError, match="tune_rounds is 0"):
        Config(personal={"tune_rounds": 0})
