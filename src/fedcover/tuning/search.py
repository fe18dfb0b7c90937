"""Choose a run's settings: candidates, successive halving, rounds, and then the score.

Nothing here sees a calibration or test label (docs/guarantee.md): see :mod:`fedcover.tuning.folds`.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from torch_geometric.data import Data

from fedcover.config import Config, recipe_of, to_toml
from fedcover.errors import DataError, UsageError
from fedcover.files import write_whole
from fedcover.graphs.check import check_graph
from fedcover.graphs.splits import Role
from fedcover.party import calibration
from fedcover.simulation.repetition import Federation, Repetition, settled
from fedcover.simulation.run import Simulation
from fedcover.training.plan import Progress
from fedcover.tuning.criterion import (
    SCORES,
    ScoreSize,
    Validation,
    enough,
    log_loss,
    score_sizes,
)
from fedcover.tuning.folds import folds
from fedcover.tuning.halving import ETA, RUNGS, Budget, Ladder, Losses, Trial, halve
from fedcover.tuning.space import Candidate, axes_of, draw, usual_methods

ALPHA = 0.1
CANDIDATES = 27  # 27 a ninth as long, 9 a third as long, 3 in full
SEEDS = 5
SLACK = 1.5  # rounds are so many times the latest best one
LATE = 0.95  # a best round after such a share of all rounds may not be the last word
CLEAR = 2.0  # standard errors by which a candidate must be better than the settings as given
RESERVED = 0.05  # of the time, for the choice of the score

_log = logging.getLogger("fedcover")  # as run's notes


@dataclass(frozen=True)
class Tuning:
    """What was chosen, and what it was chosen from."""

    config: Config  # the choice
    tried: pl.DataFrame  # one row for each candidate, the best first
    scores: list[ScoreSize]  # of the chosen model; empty where validation nodes are too few
    gain: tuple[float, float] | None  # of the best: its loss minus that as given, standard error
    notes: list[str]
    seconds: float

    def save(self, path: str | Path) -> Path:
        """Write the choice as TOML and what was tried as CSV beside it; returns the CSV's path."""
        path = Path(path)
        beside = tried_file(path)
        head = f"# Chosen by fedcover tune among {len(self.tried)} candidates, on validation nodes."
        write_whole(beside, self.tried.write_csv().encode())
        write_whole(path, f"{head}\n{to_toml(self.config)}".encode())
        return beside


def tried_file(path: Path) -> Path:
    """Where the table of what was tried is written, beside the choice."""
    return path.with_suffix(".tried.csv")


def tune(
    graph: Data,
    config: Config | None = None,
    *,
    minutes: float | None = None,
    candidates: int = CANDIDATES,
    seeds: int = SEEDS,
    seed: int = 0,
    alpha: float = ALPHA,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Tuning:
    """Choose one of ``config.methods``, and settings for it, on the graph's validation nodes.

    The candidates, drawn with ``seed``, are compared by their mean validation log-loss over
    ``seeds`` trainings, the same for all; of several seeds, the best must be clearly better than
    the settings as given, with the first method, to replace them. Without a ``config`` it is the
    default's recipe, without or with Gen. ``config.rounds`` is the longest training; all other
    settings stay as ``config`` has them. The score is the one with the smallest
    sets at the level ``alpha``. ``minutes`` bounds the time, None not at all; without a bound, or
    within it, the same arguments give the same choice.
    """
    budget = Budget(_seconds(minutes), clock)
    _check(candidates, seeds, seed, alpha)
    graph, config = check_graph(graph), config or Config(methods=usual_methods(Config()))
    report = progress or _silent
    repetitions = folds(graph, config, seeds)
    report("partition", 1, 1)
    drawn = draw(config, candidates, np.random.default_rng([seed, 0x7E57]))
    fixed = settled(config, graph)
    bench = _Bench(repetitions, fixed, budget)

    def measure(number: int, rung: int) -> Losses:
        try:
            return bench.losses(number, drawn[number], rung)
        except DataError:  # a high learning rate diverges; the settings as given should not
            if number == 0:
                raise
            return np.full(seeds, math.inf)

    ladder = halve(
        len(drawn),
        measure,
        budget,
        carried=(0,),
        on_trial=lambda rung, done, total: report(f"rung {rung + 1} of {RUNGS}", done, total),
    )
    best = ladder.best()
    if best is None:
        raise UsageError(
            f"minutes is {minutes:g}, too short to try a single candidate for "
            f"{_rounds(config, 0)} rounds; give more time, or fewer rounds or seeds."
        )
    notes = [] if ladder.finished else [_cut_short(ladder, drawn)]
    gain, given = ladder.gain(), ladder.last(0)
    if gain is not None and given is not None and -gain[0] <= CLEAR * gain[1]:
        best = given
        notes.append(
            "no candidate is better than the settings as given by more than twice the standard "
            "error of the difference: these are kept."
        )
    kept = bench.kept[best.candidate, best.rung]
    chosen = replace(drawn[best.candidate].of(config), rounds=_enough_rounds(config, best, kept))
    if best.rung == RUNGS - 1 and kept.best_round > LATE * config.rounds:
        notes.append(
            f"the lowest validation loss came at round {kept.best_round} of {config.rounds}: more "
            "rounds may lower it further."
        )
    score, sizes, sentence = _choose_score(kept.nodes, alpha, seed, config.temperature != "none")
    notes += sentence
    for note in notes:
        _log.warning("%s", note)
    # Another seed's split would calibrate and test with nodes that were seen here.
    runs = config.seeds if "split" in graph else 1
    return Tuning(
        config=replace(chosen, scores=(score,), seeds=runs),
        tried=_table(config, drawn, ladder, best),
        scores=sizes,
        gain=gain,
        notes=notes,
        seconds=budget.used,
    )


@dataclass(frozen=True)
class _Kept:
    """What is needed of a trial after it: small, so that every trial's can be kept."""

    nodes: list[Validation]  # of every repetition
    best_round: int  # the latest of all


class _Bench:
    """Trains candidates on the same repetitions."""

    def __init__(self, repetitions: Sequence[Repetition], config: Config, budget: Budget) -> None:
        self._repetitions, self._config, self._budget = repetitions, config, budget
        self._linked: dict[Any, Simulation] = {}  # by what prototypes and their linker depend on
        self.kept: dict[tuple[int, int], _Kept] = {}

    def losses(self, number: int, candidate: Candidate, rung: int) -> Losses:
        """A candidate's validation loss by repetition."""
        config = shortened(candidate.of(self._config), rung)
        (method,) = config.methods
        simulation = Simulation(self._repetitions, config, self._tick)
        if recipe_of(method).method.graph == "gen":
            # Prototypes and the VGAE depend neither on p nor on the model that is trained after.
            key = (replace(config.gen, shares=(1.0,)), config.privacy)
            simulation.take_linker(self._linked.setdefault(key, simulation))
        federations, outcomes = simulation.train(method)
        nodes = [_validation(one, method) for one in federations]
        best_round = max(outcome.chosen["best_round"] for outcome in outcomes)
        self.kept[number, rung] = _Kept(nodes, best_round)
        return np.array([log_loss(one) for one in nodes])

    def _tick(self, _stage: str, _done: int, _total: int) -> None:
        """The engine calls this after each round: the place to notice that time is up."""
        self._budget.check()


def shortened(config: Config, rung: int) -> Config:
    """The configuration with the rounds of a rung: a ninth, a third, all."""
    part = ETA ** (RUNGS - 1 - rung)
    personal = replace(
        config.personal,
        tune_rounds=-(-config.personal.tune_rounds // part),
        local_rounds=-(-config.personal.local_rounds // part),
    )
    return replace(config, rounds=_rounds(config, rung), personal=personal)


def _rounds(config: Config, rung: int) -> int:
    rounds: int = -(-config.rounds // ETA ** (RUNGS - 1 - rung))
    return rounds


def _validation(federation: Federation, method: str) -> Validation:
    nodes = [party.data.nodes(Role.VALID) for party in federation.parties]
    pairs = list(zip(federation.parties, nodes, strict=True))
    return Validation(
        np.concatenate([calibration.logits(party, method)[valid] for party, valid in pairs]),
        np.concatenate([party.data.y[valid] for party, valid in pairs]),
        np.repeat([party.number for party, _ in pairs], [len(valid) for _, valid in pairs]),
    )


def _enough_rounds(config: Config, best: Trial, kept: _Kept) -> int:
    """As many rounds as the latest best one and half of it besides; no more than were tried.

    A run keeps its best round anyway: what comes long after it costs time and changes nothing.
    """
    if best.rung < RUNGS - 1:
        return config.rounds
    return min(config.rounds, math.ceil(SLACK * kept.best_round))


def _choose_score(
    nodes: Sequence[Validation], alpha: float, seed: int, temperature: bool
) -> tuple[str, list[ScoreSize], list[str]]:
    fewest = min(len(one.labels) for one in nodes)
    if not enough(fewest, alpha):
        note = (
            f"{fewest} validation nodes are too few to compare scores at alpha {alpha:g}; "
            f"{SCORES[0]} is kept."
        )
        return SCORES[0], [], [note]
    sizes = score_sizes(nodes, alpha, seed, temperature=temperature)
    return min(sizes, key=lambda one: one.size).score, sizes, []


def _table(config: Config, drawn: Sequence[Candidate], ladder: Ladder, best: Trial) -> pl.DataFrame:
    """Every candidate with its last trial, the chosen one first, then by rung and loss."""
    rows: list[dict[str, Any]] = []
    for number, candidate in enumerate(drawn):
        own = [trial for trial in ladder.trials if trial.candidate == number]
        last = ladder.last(number)
        loss = None if last is None else last.loss
        several = last is not None and len(last.losses) > 1 and math.isfinite(last.loss)
        rows.append(
            {
                "candidate": number,
                **{axis: candidate.settings.get(axis) for axis in axes_of(config)},
                "rungs": len(own),
                "rounds": None if last is None else _rounds(config, last.rung),
                "valid_loss": loss,
                "valid_loss_sd": float(last.losses.std(ddof=1)) if last and several else None,
                "seconds": round(sum(trial.seconds for trial in own), 3),
                "chosen": number == best.candidate,
            }
        )
    rows.sort(
        key=lambda row: (
            not row["chosen"],
            -(row["rounds"] or 0),
            math.inf if row["valid_loss"] is None else row["valid_loss"],
            row["candidate"],
        )
    )
    floats = {"valid_loss": pl.Float64, "valid_loss_sd": pl.Float64, "rounds": pl.Int64}
    return pl.DataFrame(rows, schema_overrides=floats, infer_schema_length=None)


def _cut_short(ladder: Ladder, drawn: Sequence[Candidate]) -> str:
    tried = len({trial.candidate for trial in ladder.trials})
    said = f"time was up: {tried} of {len(drawn)} candidates were tried"
    if tried == 1:
        return f"{said}, none besides the settings as given: these are kept."
    return f"{said}, and rung {ladder.deciding + 1} of {RUNGS} decides."


def _seconds(minutes: float | None) -> float:
    if minutes is None:
        return math.inf
    if not minutes > 0:
        raise UsageError(f"minutes is {minutes:g}; it must be a positive number.")
    return 60.0 * (1 - RESERVED) * minutes


def _check(candidates: int, seeds: int, seed: int, alpha: float) -> None:
    for name, value, least in (
        ("candidates", candidates, 1),
        ("seeds", seeds, 1),
        ("seed", seed, 0),
    ):
        if value < least:
            raise UsageError(f"{name} is {value}; it must be a whole number of {least} or more.")
    if not 0 < alpha < 1:
        raise UsageError(f"alpha is {alpha:g}; it must lie strictly between 0 and 1.")


def _silent(_stage: str, _done: int, _total: int) -> None:
    pass
