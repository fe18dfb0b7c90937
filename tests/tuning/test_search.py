"""The whole choice: the same again, blind to calibration and test labels, and in time."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from fedcover import Config, DataError, UsageError
from fedcover.algorithm import session
from fedcover.algorithm.gen import linker
from fedcover.config import GenSettings, configured
from fedcover.graphs.splits import Role
from fedcover.simulation.repetition import prepare
from fedcover.simulation.run import Simulation
from fedcover.training.program import Program
from fedcover.tuning import search, tune
from fedcover.tuning.search import shortened

CONFIG = Config(methods=("fed",), clients=3, rounds=9, hidden=16, train=0.5)
SHORT = {"candidates": 5, "seeds": 2}
GEN = {"prototypes": (2, 3), "shares": (0.1, 0.3), "link_rounds": 2, "vae": {"epochs": 2}}


def same(one, other):
    assert one.config == other.config
    assert one.scores == other.scores
    assert one.gain == other.gain
    assert one.notes == other.notes
    assert one.tried.drop("seconds").equals(other.tried.drop("seconds"))


def test_the_same_call_gives_the_same_choice(learnable):
    graph = learnable()
    first = tune(graph, CONFIG, **SHORT)
    same(first, tune(graph, CONFIG, minutes=60, **SHORT))
    other = tune(graph, CONFIG, seed=1, **SHORT)
    columns = ["candidate", "hidden", "lr", "dropout"]
    assert not other.tried.sort("candidate")[columns].equals(first.tried.sort("candidate")[columns])


def test_calibration_and_test_labels_change_nothing(learnable):
    """All labels that must not be seen are replaced by garbage: the choice is the same."""
    graph = learnable()
    config = replace(CONFIG, methods=("fed+prior+tuned", "gen+mix"), rounds=3, gen=GEN)
    short = {"candidates": 4, "seeds": 2}
    honest = tune(graph, config, **short)
    assert set(honest.tried["method"]) == set(config.methods)
    roles = prepare(graph, config, config.first_seed).roles
    unseen = np.flatnonzero(roles >= Role.CALIB)
    garbage = graph.clone()
    garbage.y = graph.y.clone()
    garbage.y[unseen] = (graph.y[unseen] + 1) % 3
    same(honest, tune(garbage, config, **short))
    garbage.y = graph.y.clone()
    seen = np.flatnonzero(roles == Role.VALID)
    garbage.y[seen] = (graph.y[seen] + 1) % 3
    assert tune(garbage, config, **short).scores != honest.scores  # these labels do count


def test_the_loss_as_given_is_that_of_the_run(learnable):
    """One seed, one candidate: what the run's own training reports as its lowest loss."""
    graph = learnable()
    config = replace(CONFIG, unit_features=False)
    tuned = tune(graph, config, candidates=1, seeds=1)
    simulation = Simulation([prepare(graph, config, 0)], config, lambda *_: None)
    trained = simulation.train("fed")[1][0].models["shared"]
    row = tuned.tried.row(0, named=True)
    assert row["valid_loss"] == pytest.approx(min(trained.losses), rel=1e-5)
    assert (row["rungs"], row["rounds"], row["valid_loss_sd"], row["chosen"]) == (2, 9, None, True)
    rounds = min(9, int(np.ceil(1.5 * (trained.best + 1))))
    assert tuned.config == replace(config, rounds=rounds, seeds=1, scores=tuned.config.scores)


def test_the_choice_is_the_best_of_the_last_rung(learnable):
    tuned = tune(learnable(), CONFIG, candidates=9, seeds=2)
    tried = tuned.tried
    assert tried["rungs"].to_list().count(1) >= 5
    last = tried.filter(rounds=9)
    assert 0 in last["candidate"]
    assert last["valid_loss"].is_sorted()
    assert tried["chosen"].to_list() == [True] + [False] * 8
    best = tried.row(0, named=True)
    assert (tuned.config.model, tuned.config.hidden, tuned.config.lr) == (
        best["model"],
        best["hidden"],
        best["lr"],
    )
    assert best["candidate"] != 0
    given = last.filter(candidate=0)["valid_loss"][0]
    assert tuned.gain[0] == pytest.approx(best["valid_loss"] - given)
    sizes = {one.score: one.size for one in tuned.scores}
    assert tuned.config.scores == (min(sizes, key=sizes.get),)


def test_what_is_not_clearly_better_does_not_replace_what_was_given(learnable, monkeypatch):
    monkeypatch.setattr(search, "CLEAR", 1e9)
    tuned = tune(learnable(), CONFIG, candidates=9, seeds=2)
    assert tuned.tried.filter(chosen=True)["candidate"].to_list() == [0]
    assert tuned.tried["chosen"][0]
    assert tuned.gain[0] < 0  # of the best, which is not taken
    assert (tuned.config.model, tuned.config.hidden) == (CONFIG.model, CONFIG.hidden)
    assert any("these are kept" in note for note in tuned.notes)


class Ticking:
    """Every look at the clock takes a second."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def test_the_budget_is_kept_and_the_best_so_far_is_taken(learnable):
    clock = Ticking()
    tuned = tune(learnable(), CONFIG, minutes=1, candidates=27, seeds=2, clock=clock)
    tried = tuned.tried.filter(pl.col("rungs") > 0)
    assert 0 < len(tried) < 27
    assert clock.now <= 60
    assert tuned.notes[0].startswith(f"time was up: {len(tried)} of 27 candidates were tried, and ")
    untried = tuned.tried.filter(pl.col("rungs") == 0)
    assert untried["valid_loss"].null_count() == len(untried) == 27 - len(tried)


@pytest.mark.parametrize("minutes", [0.3, 0.7, 1.5])
def test_however_short_the_time_only_what_is_clearly_better_replaces_what_was_given(
    learnable, monkeypatch, minutes
):
    monkeypatch.setattr(search, "CLEAR", 1e9)
    tuned = tune(learnable(), CONFIG, minutes=minutes, candidates=27, seeds=2, clock=Ticking())
    assert tuned.notes[0].startswith("time was up")
    assert tuned.tried.filter("chosen")["candidate"].to_list() == [0]


def test_where_time_is_up_after_the_settings_as_given_they_are_kept_with_a_word(learnable):
    tuned = tune(learnable(), CONFIG, minutes=0.15, candidates=27, seeds=2, clock=Ticking())
    assert tuned.tried.filter(pl.col("rungs") > 0)["candidate"].to_list() == [0]
    assert tuned.tried["candidate"][0] == 0
    assert tuned.gain is None
    assert tuned.notes[0] == (
        "time was up: 1 of 27 candidates were tried, none besides the settings as given: these are "
        "kept."
    )


def test_too_little_time_for_anything_is_said(learnable):
    with pytest.raises(UsageError, match=r"^minutes is 0\.03, too short to try a single candidate"):
        tune(learnable(), CONFIG, minutes=0.03, clock=Ticking())


def test_too_few_validation_nodes_keep_lac(learnable):
    config = replace(CONFIG, train=0.2)  # 48 nodes train, of which about 10 validate
    tuned = tune(learnable(), config, candidates=1, seeds=1, alpha=0.05)
    assert tuned.config.scores == ("lac",)
    assert tuned.scores == []
    assert any(
        "validation nodes are too few to compare scores at alpha 0.05" in note
        for note in tuned.notes
    )


def test_gen_gets_one_m_and_one_p(learnable):
    config = replace(CONFIG, methods=("gen",), rounds=3, gen=GEN)
    tuned = tune(learnable(), config, candidates=3, seeds=1)
    assert {"prototypes", "share"} <= set(tuned.tried.columns)
    best = tuned.tried.row(0, named=True)
    assert tuned.config.gen.prototypes == (best["prototypes"],)
    assert tuned.config.gen.shares == (best["share"],)


def test_what_candidates_have_in_common_is_generated_once(learnable, monkeypatch):
    """Prototypes depend on M alone; a candidate's loss is that of a search without sharing."""
    graph, made = learnable(), []
    gen = GenSettings(prototypes=(2, 3), shares=(0.05, 0.1), link_rounds=1, vae={"epochs": 1})
    config = replace(CONFIG, methods=("gen",), rounds=3, gen=gen)

    def counted(config, features):
        made.append(config.gen.prototypes)
        return linker(config, features)

    monkeypatch.setattr(session, "linker", counted)
    shared = tune(graph, config, candidates=5, seeds=1)
    assert sorted(made) == [(2,), (3,)]
    monkeypatch.setattr(Simulation, "take_linker", lambda _self, _other: None)
    same(shared, tune(graph, config, candidates=5, seeds=1))
    assert len(made) > 4


def test_seeds_are_kept_only_where_all_have_one_split(learnable):
    rng = np.random.default_rng(0)
    given = rng.permutation(np.resize([0, 0, 1, 2, 3], 240))
    assert tune(learnable(), CONFIG, candidates=1, seeds=1).config.seeds == 1
    own = tune(learnable(split=given), replace(CONFIG, seeds=7), candidates=1, seeds=1)
    assert own.config.seeds == 7


def test_a_candidate_that_diverges_is_not_chosen_and_stops_nothing(learnable, monkeypatch):
    begin = Program.__init__

    def fragile(self, federations, plan, *further):
        if plan.hidden != 16:
            raise DataError("Training diverged.")
        begin(self, federations, plan, *further)

    monkeypatch.setattr(Program, "__init__", fragile)
    tuned = tune(learnable(), CONFIG, **SHORT)
    assert tuned.tried.filter("chosen")["candidate"].to_list() == [0]
    assert tuned.tried["valid_loss"].is_infinite().sum() == 4
    with pytest.raises(DataError, match="diverged"):
        tune(learnable(), replace(CONFIG, hidden=8), **SHORT)


def test_the_files_are_read_back(learnable, tmp_path):
    tuned = tune(learnable(), CONFIG, candidates=2, seeds=1)
    beside = tuned.save(tmp_path / "sub" / "best.toml")
    assert beside == tmp_path / "sub" / "best.tried.csv"
    assert configured(tmp_path / "sub" / "best.toml") == tuned.config
    assert pl.read_csv(beside)["candidate"].to_list() == tuned.tried["candidate"].to_list()


def test_rungs_shorten_the_training_by_hand():
    config = Config(rounds=100, personal={"tune_rounds": 30, "local_rounds": 40})
    got = [shortened(config, rung) for rung in range(3)]
    assert [one.rounds for one in got] == [12, 34, 100]
    assert [one.personal.tune_rounds for one in got] == [4, 10, 30]
    assert [one.personal.local_rounds for one in got] == [5, 14, 40]
    assert got[2] == config


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"minutes": -1}, "minutes is -1; it must be a positive number."),
        ({"minutes": float("nan")}, "minutes is nan; it must be a positive number."),
        ({"candidates": 0}, "candidates is 0; it must be a whole number of 1 or more."),
        ({"seeds": 0}, "seeds is 0; it must be a whole number of 1 or more."),
        ({"seed": -1}, "seed is -1; it must be a whole number of 0 or more."),
        ({"alpha": 1}, "alpha is 1; it must lie strictly between 0 and 1."),
    ],
)
def test_wrong_arguments(learnable, arguments, sentence):
    with pytest.raises(UsageError) as refusal:
        tune(learnable(), CONFIG, **arguments)
    assert str(refusal.value) == sentence
