"""Choose a run's settings: candidates, successive halving, rounds, and then the score.

Nothing here sees a calibration or test label (docs/guarantee.md): see :mod:`fedcover.tuning.folds`.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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
from fedcover.tuning.criterion import SCORES, ScoreSize, Validation, enough, log_loss, score_sizes
from fedcover.tuning.folds import folds
from fedcover.tuning.halving import ETA, RUNGS, Budget, Ladder, Losses, Trial, halve
from fedcover.tuning.space import Candidate, axes_of, draw, usual_methods

ALPHA = 0.1
CANDIDATES = 27  # 27 a ninth as long, 9 a third as long, 3 in full
SEEDS = 5
PARTS: tuple[int, ...] = tuple(ETA**rung for rung in reversed(range(RUNGS)))  # of the rounds
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
        beside = path.with_suffix(".tried.csv")
        head = f"# Chosen by fedcover tune among {len(self.tried)} candidates, on validation nodes."
        write_whole(beside, self.tried.write_csv().encode())
        write_whole(path, f"{head}\n{to_toml(self.config)}".encode())
        return beside


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
    settings stay as ``config`` has them. The score is the one with the smallest sets at the level
    ``alpha``. ``minutes`` bounds the time, None not at all; without a bound, or within it, the same
    arguments give the same choice.
    """
    _check(minutes, candidates, seeds, seed, alpha)
    seconds = math.inf if minutes is None else 60.0 * (1 - RESERVED) * minutes
    budget = Budget(seconds, clock)
    graph, config = check_graph(graph), config or Config(methods=usual_methods(Config()))
    report = progress or (lambda *_: None)
    repetitions = folds(graph, config, seeds)
    report("partition", 1, 1)
    drawn = draw(config, candidates, np.random.default_rng([seed, 0x7E57]))
    bench = _Bench(repetitions, settled(config, graph), drawn, budget)
    ladder = halve(
        len(drawn),
        bench.losses,
        budget,
        carried=(0,),
        on_trial=lambda rung, done, total: report(f"rung {rung + 1} of {RUNGS}", done, total),
    )
    best = ladder.best()
    if best is None:
        raise UsageError(
            f"minutes is {minutes:g}, too short to try a single candidate for "
            f"{_part(config.rounds, 0)} rounds; give more time, or fewer rounds or seeds."
        )
    notes = []
    if not ladder.finished:
        tried = len({trial.candidate for trial in ladder.trials})
        decides = f"and rung {ladder.deciding + 1} of {RUNGS} decides."
        alone = "none besides the settings as given: these are kept."
        said = f"time was up: {tried} of {len(drawn)} candidates were tried"
        notes.append(f"{said}, {alone if tried == 1 else decides}")
    gain, given = ladder.gain(), ladder.last(0)
    if gain is not None and given is not None and -gain[0] <= CLEAR * gain[1]:
        best = given
        notes.append(
            "no candidate is better than the settings as given by more than twice the standard "
            "error of the difference: these are kept."
        )
    nodes, best_round = bench.kept[best.candidate, best.rung]
    rounds = config.rounds
    if best.rung == RUNGS - 1:
        # A run keeps its best round: what comes long after it costs time and changes nothing.
        rounds = min(rounds, math.ceil(SLACK * best_round))
        if best_round > LATE * config.rounds:
            notes.append(
                f"the lowest validation loss came at round {best_round} of {config.rounds}: more "
                "rounds may lower it further."
            )
    score, sizes = SCORES[0], list[ScoreSize]()
    fewest = min(len(one.labels) for one in nodes)
    if enough(fewest, alpha):
        sizes = score_sizes(nodes, alpha, seed, temperature=config.temperature != "none")
        score = min(sizes, key=lambda one: one.size).score
    else:
        notes.append(
            f"{fewest} validation nodes are too few to compare scores at alpha {alpha:g}; "
            f"{score} is kept."
        )
    for note in notes:
        _log.warning("%s", note)
    # Another seed's split would calibrate and test with nodes that were seen here.
    runs = config.seeds if "split" in graph else 1
    chosen = drawn[best.candidate].of(config)
    return Tuning(
        config=replace(chosen, rounds=rounds, scores=(score,), seeds=runs),
        tried=_table(config, drawn, ladder, best),
        scores=sizes,
        gain=gain,
        notes=notes,
        seconds=budget.used,
    )


@dataclass
class _Bench:
    """Trains candidates on the same repetitions."""

    repetitions: Sequence[Repetition]
    config: Config
    drawn: Sequence[Candidate]
    budget: Budget
    # By what prototypes and their linker depend on:
    linked: dict[Any, Simulation] = field(default_factory=dict)
    # By candidate and rung, each repetition's validation nodes and the latest best round:
    kept: dict[tuple[int, int], tuple[list[Validation], int]] = field(default_factory=dict)

    def losses(self, number: int, rung: int) -> Losses:
        """A candidate's validation loss by repetition."""
        config = shortened(self.drawn[number].of(self.config), rung)
        (method,) = config.methods
        # The engine reports after each round: the place to notice that time is up.
        simulation = Simulation(self.repetitions, config, lambda *_: self.budget.check())
        if recipe_of(method).method.graph == "gen":
            # Prototypes and the VGAE depend neither on p nor on the model that is trained after.
            key = (replace(config.gen, shares=(1.0,)), config.privacy)
            simulation.take_linker(self.linked.setdefault(key, simulation))
        try:
            federations, outcomes = simulation.train(method)
        except DataError:  # a high learning rate diverges; the settings as given should not
            if number == 0:
                raise
            return np.full(len(self.repetitions), math.inf)
        nodes = [_validation(one, method) for one in federations]
        best_round = max(outcome.chosen["best_round"] for outcome in outcomes)
        self.kept[number, rung] = nodes, best_round
        return np.array([log_loss(one) for one in nodes])


def shortened(config: Config, rung: int) -> Config:
    """The configuration with the rounds of a rung: a ninth, a third, all."""
    personal = replace(
        config.personal,
        tune_rounds=_part(config.personal.tune_rounds, rung),
        local_rounds=_part(config.personal.local_rounds, rung),
    )
    return replace(config, rounds=_part(config.rounds, rung), personal=personal)


def _part(rounds: int, rung: int) -> int:
    return -(-rounds // PARTS[rung])


def _validation(federation: Federation, method: str) -> Validation:
    pairs = [(party, party.data.nodes(Role.VALID)) for party in federation.parties]
    return Validation(
        np.concatenate([calibration.logits(party, method)[valid] for party, valid in pairs]),
        np.concatenate([party.data.y[valid] for party, valid in pairs]),
        np.repeat([party.number for party, _ in pairs], [len(valid) for _, valid in pairs]),
    )


def _table(config: Config, drawn: Sequence[Candidate], ladder: Ladder, best: Trial) -> pl.DataFrame:
    """Every candidate with its last trial, the chosen one first, then by rung and loss."""
    rows = []
    for number, candidate in enumerate(drawn):
        own = [trial for trial in ladder.trials if trial.candidate == number]
        row = {"candidate": number, **dict.fromkeys(axes_of(config)), **candidate.settings}
        row |= {"rungs": len(own), "rounds": None, "valid_loss": None, "valid_loss_sd": None}
        if own:
            losses = own[-1].losses
            row |= {"rounds": _part(config.rounds, own[-1].rung), "valid_loss": own[-1].loss}
            if len(losses) > 1 and math.isfinite(own[-1].loss):
                row["valid_loss_sd"] = float(losses.std(ddof=1))
        seconds = round(sum(trial.seconds for trial in own), 3)
        rows.append({**row, "seconds": seconds, "chosen": number == best.candidate})
    floats = {"valid_loss": pl.Float64, "valid_loss_sd": pl.Float64, "rounds": pl.Int64}
    return pl.DataFrame(rows, schema_overrides=floats, infer_schema_length=None).sort(
        "chosen", "rounds", "valid_loss", "candidate",
        descending=[True, True, False, False], nulls_last=True,
    )  # fmt: skip


def _check(minutes: float | None, candidates: int, seeds: int, seed: int, alpha: float) -> None:
    if minutes is not None and not minutes > 0:
        raise UsageError(f"minutes is {minutes:g}; it must be a positive number.")
    least = {"candidates": (candidates, 1), "seeds": (seeds, 1), "seed": (seed, 0)}
    for name, (value, lowest) in least.items():
        if value < lowest:
            raise UsageError(f"{name} is {value}; it must be a whole number of {lowest} or more.")
    if not 0 < alpha < 1:
        raise UsageError(f"alpha is {alpha:g}; it must lie strictly between 0 and 1.")
