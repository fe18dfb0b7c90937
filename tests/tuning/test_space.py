"""Which settings are tried."""

import math

import numpy as np
import pytest

from fedcover import Config
from fedcover.tuning.space import AXES, as_given, axes_of, draw


def drawn(config, count, seed=0):
    return draw(config, count, np.random.default_rng(seed))


def test_the_settings_as_given_come_first_and_change_nothing():
    config = Config(methods=("fed",), hidden=48, lr=0.02)
    first, *others = drawn(config, 10)
    assert first.settings == {
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
        assert {axis: getattr(got, axis) for axis in AXES} == candidate.settings
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
    ("methods", "axes"),
    [
        (("fed", "loc"), [*AXES]),
        (("fedsage", "fedsage+"), [axis for axis in AXES if axis != "model"]),
        (("fedsage", "fed"), [*AXES]),
        (("gen+prior",), [*AXES, "prototypes", "share"]),
    ],
)
def test_axes_that_make_no_difference_are_left_out(methods, axes):
    assert list(axes_of(Config(methods=methods))) == axes


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
