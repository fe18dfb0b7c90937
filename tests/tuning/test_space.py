"""Which settings are tried."""

import math

import numpy as np
import pytest

from fedcover import Config
from fedcover.tuning.space import AXES, as_given, axes_of, draw, usual_methods


def drawn(config, count, seed=0):
    return draw(config, count, np.random.default_rng(seed))


def test_the_settings_as_given_come_first_and_change_nothing():
    config = Config(methods=("fed",), hidden=48, lr=0.02)
    first, *others = drawn(config, 10)
    assert first.settings == {
        "method": "fed",
        "model": "gcn",
        "hidden": 48,
        "lr": 0.02,
        "dropout": 0.5,
        "local_epochs": 3,
    }
    assert first.of(config) == config
    for candidate in others:
        assert all(candidate.settings[axis] in values for axis, values in AXES.items())
        got = candidate.of(config)
        assert {
            "method": "fed",
            **{axis: getattr(got, axis) for axis in AXES},
        } == candidate.settings
        assert (got.rounds, got.scores, got.gen) == (config.rounds, config.scores, config.gen)


def test_a_space_is_drawn_to_its_end_without_repetition():
    size = math.prod(map(len, AXES.values()))
    everything = drawn(Config(methods=("fed",)), 10_000)
    assert len(everything) == size  # the default is one of the points
    assert len({tuple(c.settings.items()) for c in everything}) == size
    assert len(drawn(Config(methods=("fed",), hidden=48), 10_000)) == size + 1


def test_the_draw_depends_on_its_seed_and_a_longer_one_begins_alike():
    config = Config(methods=("fed",))
    assert drawn(config, 9) == drawn(config, 27)[:9]
    assert drawn(config, 9) != drawn(config, 9, seed=1)


@pytest.mark.parametrize(
    ("method", "axes"),
    [
        ("fed+mix", [*AXES]),
        ("fedsage+", [axis for axis in AXES if axis != "model"]),
        ("gen+prior", [*AXES, "prototypes", "share"]),
    ],
)
def test_what_makes_no_difference_to_a_method_is_left_out(method, axes):
    several = Config(methods=("fed+mix", "fedsage+", "gen+prior"))
    for config in (Config(methods=(method,)), several):
        own = [c.settings for c in drawn(config, 100) if c.settings["method"] == method]
        assert len(own) > 10
        assert all(list(settings) == ["method", *axes] for settings in own)


def test_one_of_several_methods_is_chosen_and_of_those_that_parties_can_have():
    config = Config(methods=("loc", "central", "gen", "restored"))
    assert axes_of(config)["method"] == ("loc", "gen")
    assert as_given(config).of(config).methods == ("loc",)
    names = [candidate.of(config).methods for candidate in drawn(config, 100)]
    there = names.count(("gen",))
    assert 30 < there < 70
    assert names == [("loc",)] * (100 - there) + [("gen",)] * there
    assert axes_of(Config(methods=("central",)))["method"] == ("central",)


def test_where_no_method_is_named_the_recipe_of_the_preset_is_tried_with_and_without_gen():
    assert usual_methods(Config()) == ("fed+prox+prior+mix", "gen+prox+prior+mix")
    assert usual_methods(Config.preset("paper")) == ("fed", "gen")


def test_gen_takes_one_m_and_one_p_from_its_own_grid():
    config = Config(methods=("gen",), gen={"prototypes": (2, 7), "shares": (0.1, 0.3, 0.5)})
    assert as_given(config).settings["prototypes"] == 7
    assert as_given(config).settings["share"] == 0.3
    cells = {(c.settings["prototypes"], c.settings["share"]) for c in drawn(config, 500)}
    assert cells == {(m, p) for m in (2, 7) for p in (0.1, 0.3, 0.5)}
    chosen = drawn(config, 2)[1]
    gen = chosen.of(config).gen
    assert (gen.prototypes, gen.shares) == (
        (chosen.settings["prototypes"],),
        (chosen.settings["share"],),
    )
    assert gen.linking == config.gen.linking


def test_gen_is_not_tried_without_generated_neighbours():
    """For every M it would be Fed once more."""
    config = Config(methods=("gen",))
    assert config.gen.shares[0] == 0
    assert as_given(config).settings["share"] == 0.04
    assert 0 not in {c.settings["share"] for c in drawn(config, 200)}
    only = Config(methods=("gen",), gen={"prototypes": 2, "shares": 0})
    assert as_given(only).of(only).gen.shares == (0,)
