"""A simulation: a graph and a configuration in, tidy tables out."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from torch_geometric.data import Data

from fedcover import __version__, tables
from fedcover.algorithm.requests import Conversation, Result
from fedcover.algorithm.session import Outcome
from fedcover.carriers.stacked import Stacked
from fedcover.config import BEST_LINKED, Config, recipe_of
from fedcover.conformal.exchangeability import pooled_test
from fedcover.errors import UsageError
from fedcover.graphs.assemble import feature_matrix
from fedcover.graphs.check import check_graph
from fedcover.graphs.labels import NO_LABEL
from fedcover.graphs.links import link_facts
from fedcover.graphs.splits import Role
from fedcover.graphs.statistics import describe
from fedcover.ledger import totals
from fedcover.models.vae import check_size
from fedcover.party.calibration import mixture_weights
from fedcover.predictor import Predictor, save_predictor
from fedcover.predictor.saving import FOLDER
from fedcover.privacy import Spending, spending
from fedcover.run_folder import hardware, versions, write_run
from fedcover.simulation.drawing import Shown, shown
from fedcover.simulation.evaluation import Evaluation, Judge
from fedcover.simulation.predictors import Maker
from fedcover.simulation.repetition import (
    Federation,
    Repetition,
    centre,
    federation,
    prepare,
    settled,
)
from fedcover.training.plan import Progress

UNSCALED = 100.0  # A feature beyond this is not on the scale that weights are drawn for
_log = logging.getLogger("fedcover")  # the package's: who calls run in Python knows that name


@dataclass(frozen=True)
class Run:
    """Everything a run found out."""

    config: Config
    results: pl.DataFrame  # one row for each method, score, quantile, alpha, seed
    groups: pl.DataFrame  # the same by client, class, degree, position, set size
    sets: pl.DataFrame  # one row for each node asked about besides
    ledger: pl.DataFrame  # one row for each array that would cross a network
    info: dict[str, Any]  # what run.json holds
    # The first seed's nodes that the page shows, and each one's probabilities and scores:
    shown: Shown | None = None
    scores: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=tables.SCORES))
    thresholds: pl.DataFrame | None = None  # of clients, classes or groups that have their own
    predictors: Sequence[Predictor] = ()  # the first seed's, one a method that can be kept

    def save(self, folder: str | Path) -> Path:
        """Write the run folder with its page and its predictors; it is whole or absent."""
        from fedcover.report.page import write_run_page

        def finish(place: Path) -> None:
            write_run_page(place)
            for predictor in self.predictors:
                save_predictor(predictor, place / FOLDER / predictor.method)

        drawing: dict[str, Any] = {}
        if self.shown is not None:
            nodes, edges = self.shown.frames()
            drawing = {"nodes": nodes, "edges": edges, "scores": self.scores}
        names = ("results", "groups", "thresholds", "sets", "ledger")
        kept = {name: getattr(self, name) for name in names}
        return write_run(Path(folder), self.info, finish, **kept, **drawing)


def run(graph: Data, config: Config | None = None, *, progress: Progress | None = None) -> Run:
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
    report = progress or (lambda *_: None)
    stops = [("", time.perf_counter())]  # every stage, and when it ended

    repetitions = []
    for seed in config.seed_range:
        repetitions.append(prepare(graph, config, seed))
        report("partition", len(repetitions), config.seeds)
    seen = shown(repetitions[0])
    judges = [Judge(repetitions[0], config, seen.asked)]
    judges += [Judge(repetition, config) for repetition in repetitions[1:]]
    stops.append(("partition", time.perf_counter()))

    spent = _afforded(repetitions, config)
    book, maker, predictors = _Book(), Maker(judges[0]), list[Predictor]()
    simulation = Simulation(repetitions, config, report)
    for name in config.methods:
        federations, outcomes = simulation.train(name)
        stops.append((f"train {name}", time.perf_counter()))
        simulation.calibrate(name, federations, outcomes)
        found = zip(judges, federations, outcomes, strict=True)
        evaluations: list[Evaluation] = []
        for judge, own, outcome in found:
            report(f"calibrate {name}", len(evaluations), config.seeds)
            evaluations.append(judge.evaluate(own, outcome))
            book.enter(own, outcome, evaluations[-1])
        recipe = outcomes[0].recipe
        tests = _tests(str(recipe), repetitions, evaluations)
        book.tests += tests
        if not recipe.method.simulation:
            card = _card(judges[0], evaluations[0], spent if recipe.base == "gen" else None, tests)
            predictors.append(maker.predictor(federations[0], outcomes[0], card))
        report(f"calibrate {name}", config.seeds, config.seeds)
        stops.append((f"calibrate {name}", time.perf_counter()))
    notes = _graph_notes(graph, asked, config)
    notes += [f"seed {', '.join(map(str, seeds))}, {note}" for note, seeds in book.notes.items()]
    info = {
        "fedcover": __version__,
        "graph": {
            "name": graph.name,
            **asdict(describe(graph)),
            "unlabelled": int((graph.y == NO_LABEL).sum()),
            "label_names": list(graph.label_names),
            **({"group_names": list(graph.group_names)} if "group" in graph else {}),
        },
        "config": asdict(config),
        "seeds": list(config.seed_range),
        "split": "given" if "split" in graph else "drawn",
        "effective": book.effective,
        "apart": {kind: max(j.apart[kind] for j in judges) for kind in judges[0].apart},
        "exchangeability": book.tests,
        "cut_edges": [r.partition.cut_edges.shape[1] for r in repetitions],
        "chosen_on_validation": book.chosen,
        "left_out": book.left_out,
        "bytes_by_kind": book.sent,
        "privacy": asdict(spent) if spent else None,
        "notes": notes,
        "seconds": {stage: round(end - start, 3) for (_, start), (stage, end) in pairwise(stops)},
        "versions": versions(),
        "hardware": hardware(),
    }
    for note in notes:
        _log.warning("%s", note)
    grouped = config.calibrate != "pooled"
    return Run(
        config,
        tables.frame(book.rows("results"), tables.RESULTS),
        tables.frame(book.rows("groups"), tables.GROUPS),
        pl.concat(book.rows("sets")),
        pl.concat(book.ledgers),
        info,
        seen,
        pl.concat(book.rows("scores")),
        tables.frame(book.rows("thresholds"), tables.THRESHOLDS) if grouped else None,
        predictors,
    )


def _tests(
    method: str, repetitions: Sequence[Repetition], evaluations: Sequence[Evaluation]
) -> list[dict[str, Any]]:
    """Whether calibration and test scores differ inside the clients, one row a score.

    Seeds draw their splits independently, so that their statistics add up. A split that was given
    is the same in every seed: then the first speaks for it.
    """
    seeds = 1 if "split" in repetitions[0].graph else len(evaluations)
    rows = []
    for score in evaluations[0].ranks:
        found = pooled_test([one.ranks[score] for one in evaluations[:seeds]])
        rows.append(
            {
                "method": method,
                "score": score,
                "p_value": found.p_value,
                "party": repetitions[0].partition.names[found.party],
                "party_p_value": found.party_p_value,
            }
        )
    return rows


def _card(
    judge: Judge,
    evaluation: Evaluation,
    spent: Spending | None,
    tests: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """What a predictor's card says."""
    repetition = judge.repetition
    measured = ("score", "quantile", "alpha", "coverage", tables.SPLIT, "set_size")
    return {
        "fedcover": __version__,
        "graph": repetition.graph.name,
        "nodes": int(repetition.graph.num_nodes),
        "n_calibration": int((repetition.roles == Role.CALIB).sum()),
        "coverage": [{key: row[key] for key in measured} for row in evaluation.results],
        "exchangeability": [*tests],
        "privacy": asdict(spent) if spent else None,
        "notes": evaluation.notes,
    }


class Simulation:
    """Runs methods on the same repetitions; what several have in common is done once."""

    def __init__(self, repetitions: Sequence[Repetition], config: Config, report: Progress) -> None:
        self._repetitions, self._config, self._report = repetitions, config, report

    def train(self, name: str) -> tuple[list[Federation], list[Outcome]]:
        """Every repetition's parties, who have the method's models now, and how it came about."""
        whole = recipe_of(name).method.graph == "whole"
        federations = self._owners if whole else self._parties
        return federations, self._carry(federations, [o.session.train(name) for o in federations])

    def calibrate(
        self, name: str, federations: Sequence[Federation], outcomes: Sequence[Outcome]
    ) -> None:
        """The method's thresholds, and the parties' sets."""
        talks = [one.session.calibrate(name) for one in federations]
        for outcome, found in zip(outcomes, self._carry(federations, talks), strict=True):
            outcome.calibrated = found

    @cached_property
    def _parties(self) -> list[Federation]:
        return self._prepared([federation(one, self._config) for one in self._repetitions])

    @cached_property
    def _owners(self) -> list[Federation]:
        return self._prepared([centre(one, self._config) for one in self._repetitions])

    def _prepared(self, made: list[Federation]) -> list[Federation]:
        self._carry(made, [one.session.prepare() for one in made])
        return made

    def _carry(
        self, federations: Sequence[Federation], talks: Sequence[Conversation[Result]]
    ) -> list[Result]:
        alone = self._config.patience is not None
        carrier = Stacked([one.carried for one in federations], alone=alone)
        return carrier.carry(talks, self._report)

    def take_linker(self, other: "Simulation") -> None:
        """Use the prototypes and the link predictor of another simulation of these repetitions."""
        if other is self:
            return
        for mine, its in zip(self._parties, other._parties, strict=True):
            if its.session.take_prototypes(mine.session):
                for party, same in zip(mine.parties, its.parties, strict=True):
                    party.take_linker(same)


def _graph_notes(graph: Data, asked: Config, config: Config) -> list[str]:
    """What a user may not expect of the graph: labels missing, clients unused, features raw."""
    notes = []
    if count := int((graph.y == NO_LABEL).sum()):
        have = "node has" if count == 1 else "nodes have"
        notes.append(
            f"{count} of {graph.num_nodes} {have} no label: each gets a set and serves as a "
            "neighbour, but none is used to train, calibrate or test."
        )
    if "split" in graph and asked.test is not None:
        notes.append("test is not used: the graph's own split column says which nodes test.")
    if "client" in graph and config.partition != "given":
        notes.append(
            f"the graph names clients of its own, {len(graph.client_names)}, which are not used: "
            "--partition given, in Python Config(partition='given'), takes them."
        )
    notes += link_facts(graph).sentences()
    if config.methods != asked.methods:
        notes.append(
            f"clients know edges between them, so the default recipe is {BEST_LINKED}: nodes get "
            "a mean of neighbours at other clients."
        )
    if not (config.standardise or config.unit_features or asked.standardise is not None):
        x = feature_matrix(graph)
        largest = np.nanmax(np.abs(x if isinstance(x, np.ndarray) else x.data), initial=0)
        if largest > UNSCALED:
            notes.append(
                f"features are as large as {largest:.6g} and are taken as they are, which can "
                "spoil training: --standardise, in Python Config(standardise=True), brings them "
                "to one scale."
            )
    return notes


def _afforded(repetitions: Sequence[Repetition], config: Config) -> Spending | None:
    """What privacy costs, found out before the first training, as is who cannot afford it."""
    privacy = config.privacy
    if privacy is None or all(recipe_of(name).base != "gen" for name in config.methods):
        return None
    spent = spending(privacy)
    for repetition in repetitions:
        for party in repetition.data:
            check_size(len(party.nodes(Role.TRAIN)), party.number, privacy)
    return spent


class _Book:
    """What the methods and seeds found out."""

    def __init__(self) -> None:
        self._evaluations: list[Evaluation] = []
        self.ledgers = [pl.DataFrame(schema=tables.LEDGER)]
        self.chosen: dict[str, dict[str, list[Any]]] = {}  # by method, then one value a seed
        self.tests: list[dict[str, Any]] = []  # of exchangeability, one a method and score
        self.effective: dict[str, list[tuple[int, int]]] = {}  # by method, then one a seed
        self.left_out: dict[str, list[list[str]]] = {}  # by method, then the clients of a seed
        self.sent: dict[str, list[dict[str, dict[str, int]]]] = {}
        self.notes: dict[str, dict[int, None]] = {}  # to their seeds

    def enter(self, federation: Federation, outcome: Outcome, evaluation: Evaluation) -> None:
        """Enter one method's outcome on one seed."""
        method, seed = str(outcome.recipe), federation.repetition.seed
        self._evaluations.append(evaluation)
        self.effective.setdefault(method, []).append(evaluation.effective)
        chosen = outcome.choices
        if outcome.recipe.personal == "mix":
            weights = [mixture_weights(party, method) for party in federation.parties]
            chosen["mixture"] = [own.tolist() for own in weights]
        if outcome.calibrated.left_out:
            apart = [federation.session.parties[k] for k in sorted(outcome.calibrated.left_out)]
            self.left_out.setdefault(method, []).append(apart)
        for choice, value in chosen.items():
            self.chosen.setdefault(method, {}).setdefault(choice, []).append(value)
        if outcome.recipe.method.federated:
            entries = federation.carried.ledger.of(method, outcome.parts)
            self.sent.setdefault(method, []).append(totals(entries))
            names = federation.repetition.partition.names
            self.ledgers.append(tables.ledger_frame(method, seed, names, entries))
        for note in [*outcome.notes, *evaluation.notes]:
            self.notes.setdefault(note, {})[seed] = None

    def rows(self, table: str) -> list[Any]:
        """Those of all methods and seeds."""
        return [row for one in self._evaluations for row in getattr(one, table)]
