"""A run: configuration in, tidy tables out."""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from torch_geometric.data import Data

from fedcover import __version__
from fedcover.errors import UsageError
from fedcover.experiment.config import Config
from fedcover.experiment.evaluation import Evaluation, Judge
from fedcover.experiment.features import on_one_scale
from fedcover.experiment.frames import ledger_frame
from fedcover.experiment.keeping import Keeper, kept
from fedcover.experiment.methods import Progress, Repetition
from fedcover.experiment.recipes import Recipe, recipe_of
from fedcover.experiment.shown import Shown, shown
from fedcover.experiment.store import write_run
from fedcover.experiment.training import Outcome, Trainer
from fedcover.federation import Engine, InProcess
from fedcover.graphs.assemble import bag_of_words, feature_matrix
from fedcover.graphs.check import check_graph
from fedcover.graphs.labels import NO_LABEL
from fedcover.graphs.partition import partition
from fedcover.graphs.splits import Role, split
from fedcover.graphs.statistics import describe
from fedcover.predictor import Predictor, save_predictor
from fedcover.predictor.saving import FOLDER
from fedcover.privacy import Spending
from fedcover.privacy.dp_vae import check_size
from fedcover.tables import GROUPS, KEY, LEDGER, RESULTS, SCORES, THRESHOLDS, frame

UNSCALED = 100.0
"""A feature beyond this is not on the scale that weights are drawn for."""
_log = logging.getLogger("fedcover")  # the package's: who calls run in Python knows that name


@dataclass(frozen=True)
class Run:
    """Everything a run found out."""

    config: Config
    results: pl.DataFrame  # one row for each method, score, quantile, alpha, seed
    groups: pl.DataFrame  # the same by client, class, degree, position, set size
    sets: pl.DataFrame  # one row for each test node besides
    ledger: pl.DataFrame  # one row for each array that would cross a network
    info: dict[str, Any]  # what run.json holds
    # The first seed's nodes that the page shows, and each one's probabilities and scores:
    shown: Shown | None = None
    scores: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=SCORES))
    thresholds: pl.DataFrame | None = None  # of clients, classes or groups that have their own
    predictors: Sequence[Predictor] = ()  # the first seed's, one a method that can be kept

    def save(self, folder: str | Path) -> Path:
        """Write the run folder with its page and its predictors; it is whole or absent."""
        from fedcover.report.page import write_run_page

        def finish(place: Path) -> None:
            write_run_page(place)
            for predictor in self.predictors:
                save_predictor(predictor, place / FOLDER / predictor.method)

        drawing = {}
        if self.shown is not None:
            nodes, edges = self.shown.frames()
            drawing = {"nodes": nodes, "edges": edges, "scores": self.scores}
        return write_run(
            Path(folder),
            results=self.results,
            groups=self.groups,
            sets=self.sets,
            ledger=self.ledger,
            info=self.info,
            thresholds=self.thresholds,
            drawing=drawing,
            finish=finish,
        )


def run(
    graph: Data,
    config: Config | None = None,
    *,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Run:
    """Cut the graph, train every method on every seed, calibrate, and judge the sets.

    What a user should know of it, ``info["notes"]``, goes to the logger ``fedcover`` besides.
    """
    graph = check_graph(graph)
    if not (config is None or isinstance(config, Config)):
        raise UsageError(f"config is a {type(config).__name__}; it must be a fedcover.Config.")
    asked = config or Config()
    config = settled(asked, graph)
    if config.calibrate == "group" and "group" not in graph:
        raise UsageError(
            f"{graph.name} has no groups, which calibrate 'group' needs; --group names a column of "
            "its nodes."
        )
    engine = engine or InProcess()
    report = progress or _silent
    clock = _Clock()

    repetitions = []
    for seed in config.seed_range:
        repetitions.append(prepare(graph, config, seed))
        report("partition", len(repetitions), config.seeds)
    seen = shown(repetitions[0])
    judges = [
        Judge(repetition, config, engine, seen.test if repetition is repetitions[0] else None)
        for repetition in repetitions
    ]
    clock.stop("partition")

    spending = _afforded(repetitions, config)
    book = _Book(graph.name, config)
    keeper, predictors = Keeper(graph, judges[0]), list[Predictor]()
    trainer = Trainer(repetitions, config, engine, len(graph.label_names), report, clock.stop)
    for name in config.methods:
        recipe = recipe_of(name)
        for done, (judge, outcome) in enumerate(zip(judges, trainer.outcomes(recipe), strict=True)):
            report(f"calibrate {name}", done, config.seeds)
            evaluation = judge.evaluate(outcome.logits, outcome.ledger, outcome.prepared.parts)
            _announce(outcome, evaluation, config.calibrate)
            book.enter(recipe, judge.repetition, outcome, evaluation)
            if done == 0 and kept(recipe):
                card = _card(graph, judge, evaluation, spending if recipe.base == "gen" else None)
                predictors.append(keeper.predictor(recipe, outcome, evaluation, card))
        report(f"calibrate {name}", config.seeds, config.seeds)
        clock.stop(f"calibrate {name}")
    notes = [
        *_unlabelled(graph),
        *_unused_clients(graph, config),
        *_unscaled(graph, asked, config),
        *book.sentences(),
    ]
    info = {
        "fedcover": __version__,
        "graph": {
            "name": graph.name,
            **asdict(describe(graph)),
            "label_names": list(graph.label_names),
            **({"group_names": list(graph.group_names)} if "group" in graph else {}),
        },
        "config": asdict(config),
        "seeds": list(config.seed_range),
        "cut_edges": [r.partition.cut_edges.shape[1] for r in repetitions],
        "chosen_on_validation": book.chosen,
        "bytes_by_kind": book.sent,
        "privacy": asdict(spending) if spending else None,
        "notes": notes,
        "seconds": clock.stages,
        "versions": versions(),
        "hardware": hardware(),
    }
    for note in notes:
        _log.warning("%s", note)
    sets = pl.concat(book.sets).select(*KEY, pl.exclude(KEY))
    results, groups = frame(book.results, RESULTS), frame(book.groups, GROUPS)
    ledger, scores = pl.concat(book.ledgers), pl.concat(book.scores)
    own = None if config.calibrate == "pooled" else frame(book.thresholds, THRESHOLDS)
    return Run(config, results, groups, sets, ledger, info, seen, scores, own, predictors)


def _card(
    graph: Data, judge: Judge, evaluation: Evaluation, spending: Spending | None
) -> dict[str, Any]:
    """What a predictor's card says."""
    measured = ("score", "quantile", "alpha", "coverage", "set_size")
    return {
        "fedcover": __version__,
        "graph": graph.name,
        "nodes": int(graph.num_nodes),
        "n_calibration": int((judge.repetition.roles == Role.CALIB).sum()),
        "coverage": [{key: row[key] for key in measured} for row in evaluation.results],
        "privacy": asdict(spending) if spending else None,
        "notes": evaluation.notes,
    }


def settled(config: Config, graph: Data) -> Config:
    """The configuration with what it leaves to the graph.

    Numbers of own tables are standardised, unless they look like counts of words, or rows are to
    have length one: either is a way to bring features to one scale.
    """
    unit_features, standardise = config.unit_features, config.standardise
    if unit_features is None:
        unit_features = not standardise and bag_of_words(feature_matrix(graph))
    if standardise is None:
        standardise = not unit_features and "numeric" in graph and bool(graph.numeric.any())
    return replace(config, unit_features=unit_features, standardise=standardise)


def _unlabelled(graph: Data) -> list[str]:
    """How many nodes have no label, and what becomes of them."""
    count = int((graph.y == NO_LABEL).sum())
    if not count:
        return []
    have = "node has" if count == 1 else "nodes have"
    return [
        f"{count} of {graph.num_nodes} {have} no label: neighbours to others, but neither trained "
        "on, nor calibrated with, nor tested."
    ]


def _unused_clients(graph: Data, config: Config) -> list[str]:
    """Whether the graph knows its clients and others were made."""
    if "client" not in graph or config.partition == "given":
        return []
    return [
        f"the graph names clients of its own, {len(graph.client_names)}, which are not used: "
        "--partition given, in Python Config(partition='given'), takes them."
    ]


def _unscaled(graph: Data, asked: Config, config: Config) -> list[str]:
    """Whether features that nobody has said to scale, or to leave alone, look as if they should."""
    if config.standardise or config.unit_features or asked.standardise is not None:
        return []
    x = feature_matrix(graph)
    values = x if isinstance(x, np.ndarray) else x.data
    largest = np.nanmax(np.abs(values), initial=0)
    if largest <= UNSCALED:
        return []
    return [
        f"features are as large as {largest:.6g} and are taken as they are, which can spoil "
        "training: --standardise, in Python Config(standardise=True), brings them to one scale."
    ]


def _announce(outcome: Outcome, evaluation: Evaluation, calibrate: str) -> None:
    """The server's conclusions, which clients need to make their sets (docs/guarantee.md)."""
    ledger, clients = outcome.ledger, len(outcome.prepared.parts)
    if evaluation.raps:
        ledger.announce("chosen raps constants", np.array(evaluation.raps, np.float64), clients)
    # By client, each is told its own threshold alone.
    told = [q_hats[:1] if calibrate == "client" else q_hats for q_hats in evaluation.announced]
    ledger.announce("thresholds", np.concatenate(told), clients)


def _afforded(repetitions: Sequence[Repetition], config: Config) -> Spending | None:
    """What privacy costs, found out before the first training, as is who cannot afford it."""
    privacy = config.privacy
    if privacy is None or all(recipe_of(name).base != "gen" for name in config.methods):
        return None
    spending = privacy.spending()
    for repetition in repetitions:
        owner, trains = repetition.partition.client, repetition.roles == Role.TRAIN
        counts = np.bincount(owner[trains], minlength=repetition.partition.clients)
        for number, nodes in enumerate(counts):
            check_size(int(nodes), number, privacy)
    return spending


class _Book:
    """What the methods and seeds found out, as the rows of a run's tables."""

    def __init__(self, graph_name: str, config: Config) -> None:
        self._common = {"dataset": graph_name, "partition": config.partition}
        self._model = config.model
        self.results: list[dict[str, Any]] = []
        self.groups: list[dict[str, Any]] = []
        self.thresholds: list[dict[str, Any]] = []
        self.sets: list[pl.DataFrame] = []
        self.scores: list[pl.DataFrame] = []
        self.ledgers = [pl.DataFrame(schema=LEDGER)]
        self.chosen: dict[str, dict[str, list[Any]]] = {}  # by method, then one value a seed
        self.sent: dict[str, list[dict[str, dict[str, int]]]] = {}
        self._notes: dict[str, dict[int, None]] = {}  # to their seeds

    def enter(
        self,
        recipe: Recipe,
        repetition: Repetition,
        outcome: Outcome,
        evaluation: Evaluation,
    ) -> None:
        """Enter one method's outcome on one seed."""
        method = str(recipe)
        own = {"method": method, "seed": repetition.seed}
        seen = {
            "clients": repetition.partition.clients,
            "model": recipe.method.model or self._model,
            "train_seconds": round(outcome.seconds, 4),
        }
        self.results += [{**self._common, **own, **seen, **row} for row in evaluation.results]
        self.groups += [{**own, **row} for row in evaluation.groups]
        self.thresholds += [{**own, **row} for row in evaluation.thresholds]
        named = pl.lit(method).alias("method")
        self.sets += [f.select(named, pl.all()) for f in evaluation.sets]
        self.scores += [f.select(named, pl.all()) for f in evaluation.scores]
        choices = {
            "temperature": evaluation.temperature,
            "raps": evaluation.raps._asdict() if evaluation.raps else None,
            **{name: chosen._asdict() for name, chosen in evaluation.diffusion.items()},
            **outcome.chosen,
        }
        for choice, value in choices.items():
            self.chosen.setdefault(method, {}).setdefault(choice, []).append(value)
        if recipe.method.federated:
            self.sent.setdefault(method, []).append(outcome.ledger.totals())
            self.ledgers.append(ledger_frame(method, repetition, outcome.ledger))
        for note in [*outcome.prepared.notes, *evaluation.notes]:
            self._notes.setdefault(note, {})[repetition.seed] = None

    def sentences(self) -> list[str]:
        """The notes, each once, with the seeds that it is about."""
        return [f"seed {', '.join(map(str, seeds))}, {note}" for note, seeds in self._notes.items()]


def _silent(_stage: str, _done: int, _total: int) -> None:
    pass


class _Clock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self.stages: dict[str, float] = {}

    def stop(self, stage: str) -> None:
        now = time.perf_counter()
        self.stages[stage] = round(now - self._last, 3)
        self._last = now


def prepare(graph: Data, config: Config, seed: int) -> Repetition:
    """One seed's experiment: partition, split, and features on one scale.

    Where the configuration leaves open whether to standardise (see :func:`settled`), it is not
    done.
    """
    parts = partition(graph, config.clients, config.partition, seed)
    roles = split(
        parts.client,
        np.random.default_rng([seed, 0x5917]),
        train=config.train,
        valid=config.valid,
        given=graph.split.numpy() if "split" in graph else None,
        names=parts.names,
        labelled=graph.y.numpy() != NO_LABEL,
    )
    graph, scaling, summed = on_one_scale(graph, parts, roles, bool(config.standardise))
    return Repetition(graph, parts, roles, seed, scaling, summed)


def versions() -> dict[str, str]:
    """Of Python and the libraries that shape results."""
    found = {"python": platform.python_version()}
    for package in (
        "numpy",
        "scipy",
        "torch",
        "torch_geometric",
        "pymetis",
        "scikit-learn",
        "opacus",
        "polars",
    ):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def hardware() -> dict[str, Any]:
    """What the run had to compute with."""
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
