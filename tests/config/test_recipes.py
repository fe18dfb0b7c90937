"""The names of recipes: how they may be spelt, how they are written, and what is refused."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcover import Config, UsageError
from fedcover.config import METHODS, Recipe, recipe_of

SHARED = ("fed", "gen", "fedsage", "fedsage+", "restored")
ALONE = ("loc", "central")

SPELT = {
    "fed": Recipe("fed"),
    "fed+prior": Recipe("fed", prior=True),
    "fed+tuned": Recipe("fed", personal="tuned"),
    "fed+mix": Recipe("fed", personal="mix"),
    "fed+prior+tuned": Recipe("fed", prior=True, personal="tuned"),
    "fed+prior+mix": Recipe("fed", prior=True, personal="mix"),
    "fed+prox": Recipe("fed", prox=True),
    "fed+prox+prior+mix": Recipe("fed", prox=True, prior=True, personal="mix"),
    "gen+prior+mix": Recipe("gen", prior=True, personal="mix"),
    "restored+prior": Recipe("restored", prior=True),
    "loc+prior": Recipe("loc", prior=True),
    "loc+neighbours+prior": Recipe("loc", prior=True, neighbours=True),
    "fed+neighbours+prox+prior+mix": Recipe(
        "fed", prox=True, prior=True, personal="mix", neighbours=True
    ),
    "fedsage++neighbours": Recipe("fedsage+", neighbours=True),
    "central+prior": Recipe("central", prior=True),
    "fedsage": Recipe("fedsage"),
    "fedsage+": Recipe("fedsage+"),
    "fedsage+prior": Recipe("fedsage", prior=True),
    "fedsage++prior": Recipe("fedsage+", prior=True),
    "fedsage+mix": Recipe("fedsage", personal="mix"),
    "fedsage++prior+mix": Recipe("fedsage+", prior=True, personal="mix"),
}
RESPELT = {
    "fed+mix+prior": "fed+prior+mix",
    "fed+mix+prior+prox": "fed+prox+prior+mix",
    "gen+tuned+prior": "gen+prior+tuned",
    "fedsage++mix+prior": "fedsage++prior+mix",
    "fed+mix+neighbours": "fed+neighbours+mix",
}
FOLLOWED = "a method may be followed by +neighbours, +prox"
UNKNOWN = "it must be one of loc, fed, gen, fedsage, fedsage+, restored, central"
REFUSED = {
    "fed+foo": FOLLOWED,
    "fed+": FOLLOWED,
    "fed++prior": FOLLOWED,
    "fed+prior+": FOLLOWED,
    "fed+Prior": FOLLOWED,
    "fed+ prior": FOLLOWED,
    "fed+prior+prior": FOLLOWED,
    "fedsage+++prior": FOLLOWED,
    "fedsage++": FOLLOWED,
    "": UNKNOWN,
    "prior": UNKNOWN,
    "+prior": UNKNOWN,
    "Fed": UNKNOWN,
    "federated": UNKNOWN,
    "fedprior": UNKNOWN,
    "gem+prior": UNKNOWN,
    "fed+neighbours+neighbours": FOLLOWED,
    "central+neighbours": "central has all neighbours already.",
    "restored+neighbours+prior": "restored has all neighbours already.",
    "fed+tuned+mix": "+mix already holds the tuned model.",
    "fed+mix+prior+tuned": "+mix already holds the tuned model.",
    "loc+mix": "loc has no model that several clients share, so +mix means nothing there.",
    "loc+prior+tuned": "loc has no model that several clients share, so +tuned means nothing",
    "loc+prox": "loc has no model that several clients share, so +prox means nothing",
    "central+prox+prior": "central has no model that several clients share, so +prox means nothing",
    "central+tuned": "central has no model that several clients share, so +tuned means nothing",
}


@pytest.mark.parametrize(("name", "recipe"), SPELT.items())
def test_a_name_says_which_recipe_it_is_and_a_recipe_its_name(name, recipe):
    assert recipe_of(name) == recipe
    assert str(recipe) == name


@pytest.mark.parametrize(("name", "canonical"), RESPELT.items())
def test_parts_may_come_in_any_order_and_are_written_in_one(name, canonical):
    assert str(recipe_of(name)) == canonical
    assert recipe_of(name) == recipe_of(canonical)


@given(
    base=st.sampled_from(SHARED),
    parts=st.sets(st.sampled_from(["prior", "tuned", "mix"])).filter(
        lambda parts: not {"tuned", "mix"} <= parts
    ),
)
def test_every_order_of_the_parts_reads_back(base, parts):
    names = {"+".join([base, *order]) for order in permutations(parts)}
    recipes = {recipe_of(name) for name in names}
    assert len(recipes) == 1
    (recipe,) = recipes
    assert str(recipe) in names
    assert recipe_of(str(recipe)) == recipe
    assert recipe.base == base
    assert recipe.prior == ("prior" in parts)
    assert recipe.personal == "".join(parts - {"prior"})


def test_every_method_is_shared_or_alone_and_its_recipe_knows_it():
    assert {*SHARED, *ALONE} == set(METHODS)
    for base in METHODS:
        assert str(recipe_of(base)) == base
        assert recipe_of(f"{base}+prior").base == base
        if base in ALONE:
            with pytest.raises(UsageError, match="no model that several clients share"):
                recipe_of(f"{base}+tuned")
        else:
            assert recipe_of(f"{base}+tuned").base == base


def test_a_recipe_starts_from_the_shared_model_with_the_same_prior():
    assert recipe_of("fed+prior+mix").shared == recipe_of("fed+prior")
    assert recipe_of("gen+tuned").shared == recipe_of("gen")
    assert recipe_of("loc+prior").shared == recipe_of("loc+prior")


@pytest.mark.parametrize(("name", "fragment"), REFUSED.items(), ids=str)
def test_what_is_not_a_recipe_is_refused_in_one_sentence(name, fragment):
    with pytest.raises(UsageError) as refused:
        recipe_of(name)
    sentence = str(refused.value)
    assert sentence.startswith(f"methods has {name!r}; ")
    assert fragment in sentence
    assert sentence.endswith(".")


def test_a_config_writes_its_methods_as_recipes_do():
    config = Config(methods=("fed+mix+prior", "fedsage++prior", "loc"))
    assert config.methods == ("fed+prior+mix", "fedsage++prior", "loc")


def test_two_spellings_of_one_recipe_are_the_same_method_twice():
    with pytest.raises(UsageError, match=r"methods names 'fed\+prior\+mix' twice."):
        Config(methods=("fed+prior+mix", "fed+mix+prior"))
