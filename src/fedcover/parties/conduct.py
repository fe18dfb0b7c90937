"""A whole job as the coordinator sees it: one conversation with all sites.

For every method: (Gen) prototypes, the link predictor, the choice of M and p; then training,
temperature, RAPS's constants, thresholds, and the counts of what the sites' sets hold. What the
coordinator finds out on the way is announced, and kept in a checkpoint; a conversation that
begins again with the same checkpoint asks for nothing that it knows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcover import conformal
from fedcover.conformal.protocol import Message, Server, side_by_side
from fedcover.experiment.recipes import Recipe, recipe_of
from fedcover.experiment.temperature import WAYS
from fedcover.graphs.schema import Schema
from fedcover.neighbors.links import count_links
from fedcover.parties import checks
from fedcover.parties.calibration import CalibrationCheck
from fedcover.parties.checkpoint import Checkpoint
from fedcover.parties.fedavg import Averaged, Census, fedavg, pooled
from fedcover.parties.job import Job, plan
from fedcover.parties.messages import (
    Check,
    Conclusion,
    Conversation,
    Replies,
    Request,
    text,
    words,
)
from fedcover.training.plan import Plan, diverged

COUNTED = ("nodes", "train", "valid", "calib", "test")
TALLIED = ("test", "covered", "labels", "singletons", "empty")
"""What a site counts of its sets: nodes, those covered, labels in all sets, and so on."""


@dataclass(frozen=True)
class Roster:
    """The sites by number, and how many nodes each has of every kind."""

    names: tuple[str, ...]
    counts: Mapping[int, Mapping[str, int]]

    @property
    def numbers(self) -> frozenset[int]:
        """Of all sites."""
        return frozenset(range(len(self.names)))

    def of(self, kind: str) -> dict[int, int]:
        """One count by site."""
        return {site: counts[kind] for site, counts in self.counts.items()}

    @property
    def census(self) -> Census:
        """What training weighs the sites by."""
        return Census(self.of("train"), self.of("valid"))


@dataclass
class MethodOutcome:
    """One method's result: thresholds, and what every site's sets came to."""

    thresholds: list[conformal.Threshold] = field(default_factory=list)  # by case
    calibrated: frozenset[int] = frozenset()  # the sites that the guarantee is for
    tallies: dict[int, NDArray[np.int64]] = field(default_factory=dict)  # by site: cases × TALLIED
    correct: dict[int, int] = field(default_factory=dict)  # test nodes with the right top label
    chosen: dict[str, Any] = field(default_factory=dict)
    weights: Mapping[str, NDArray[np.floating]] | None = None


class Conductor:
    """Leads one job; see :meth:`conversation`."""

    def __init__(self, job: Job, schema: Schema, roster: Roster, checkpoint: Checkpoint) -> None:
        self._job, self._schema, self._roster = job, schema, roster
        self._checkpoint = checkpoint
        self._features = len(schema.feature_names)

    def conversation(self) -> Conversation[dict[str, MethodOutcome]]:
        """Everything from the prototypes to the last count, by method."""
        outcomes = {}
        for method in self._job.config.methods:
            outcomes[method] = yield from self._method(recipe_of(method))
        return outcomes

    def _method(self, recipe: Recipe) -> Conversation[MethodOutcome]:
        outcome, name = MethodOutcome(), str(recipe)
        if recipe.base == "gen":
            yield from self._generate(recipe, outcome)
        training = plan(self._job.config, self._schema, recipe)
        if training.average:
            trained = yield from self._train(f"{name}/train", training)
            outcome.weights = trained.weights
            outcome.chosen["best_round"] = int(trained.best_round[0]) + 1
            yield Conclusion(f"{name}/model", trained.weights)
        else:
            best = yield from self._alone(name, training.rounds, training.patience)
            outcome.chosen["best_round"] = best + 1
            yield Conclusion(f"{name}/best round", {"round": np.array(best)})
        yield from self._calibrate(name, outcome)
        yield from self._sets(name, outcome)
        return outcome

    def _train(self, phase: str, training: Plan, models: int = 1) -> Conversation[Averaged]:
        return fedavg(
            phase,
            training,
            self._features,
            self._roster.census,
            self._checkpoint,
            models=models,
            average=self._job.average,
        )

    def _generate(self, recipe: Recipe, outcome: MethodOutcome) -> Conversation[None]:
        """Gen's steps up to the choice of M and p (see :mod:`fedcover.neighbors.gen`)."""
        name, gen = str(recipe), self._job.config.gen
        check, most = checks.prototypes(gen.prototypes, self._features)
        sent = yield from self._once(
            f"{name}/prototypes",
            lambda: self._gather(Request(f"{name}/prototypes", "prototypes", 0, {}, check, most)),
        )
        yield Conclusion(f"{name}/prototypes", sent)
        linker = yield from self._train(f"{name}/links", gen.link_plan)
        yield Conclusion(f"{name}/linker", linker.weights)
        cells = self._cells(sent)
        yield Conclusion(f"{name}/cells", {"cells": np.array(cells)})
        chosen = 0
        if len(cells) > 1:
            full = plan(self._job.config, self._schema, recipe)
            short = replace(full, rounds=min(gen.screening, full.rounds), batch_size=None)
            screened = yield from self._train(f"{name}/choice", short, len(cells))
            places = (screened.best_round, np.arange(len(cells)))
            losses = np.nan_to_num(screened.history[places], nan=np.inf)
            chosen = int(np.argmin(losses))
        outcome.chosen |= {"prototypes": int(cells[chosen][0]), "share": cells[chosen][1]}
        yield Conclusion(f"{name}/cell", {"cell": np.array([chosen])})

    def _gather(self, request: Request) -> Conversation[dict[str, NDArray[Any]]]:
        """The sites' prototypes, and whose each row is, for every M."""
        replies = yield request
        sites = sorted(replies)
        gathered: dict[str, NDArray[Any]] = {}
        for m in self._job.config.gen.prototypes:
            rows = [replies[site][str(m)] for site in sites]
            gathered[f"rows.{m}"] = np.concatenate(rows)
            gathered[f"owner.{m}"] = np.repeat(np.array(sites), [len(row) for row in rows])
        return gathered

    def _cells(self, sent: Message) -> list[tuple[int, float]]:
        """The grid of M and p without those cells that give the same graphs as an earlier one.

        Prototypes of a smaller M are unions of the larger one's: as many are the same ones.
        """
        gen, seen, kept = self._job.config.gen, set(), []
        nodes = self._roster.of("nodes")
        for m, share in product(gen.prototypes, gen.shares):
            owner = sent[f"owner.{m}"]
            others = {site: int((owner != site).sum()) for site in nodes}
            key = tuple(
                (others[site], count_links(gen.linking, nodes[site], others[site], share))
                for site in sorted(nodes)
            )
            if key not in seen:
                seen.add(key)
                kept.append((m, share))
        return kept

    def _alone(self, name: str, rounds: int, patience: int | None) -> Conversation[int]:
        """Loc: the sites train by themselves, and the pooled loss chooses one round for all."""
        check = checks.Arrays({"loss": (np.float64, (rounds,))})

        def ask() -> Conversation[dict[str, NDArray[Any]]]:
            replies = yield Request(f"{name}/alone", "alone", 0, {}, check, check.nbytes)
            return {"loss": pooled(replies, self._roster.census, rounds)}

        losses = (yield from self._once(f"{name}/alone", ask))["loss"]
        if not any(self._roster.of("valid").values()):
            return rounds - 1
        best, lowest = -1, np.inf
        for round_, loss in enumerate(losses):
            if loss < lowest:
                best, lowest = round_, loss
            if patience is not None and round_ - best >= patience:
                break
        if best < 0:
            raise diverged()
        return best

    def _calibrate(self, name: str, outcome: MethodOutcome) -> Conversation[None]:
        """Temperature, RAPS's constants and thresholds, of the sites that are there for all."""
        config, present = self._job.config, self._roster.numbers
        temperature = np.array(1.0)
        if config.temperature != "none":
            server, client = WAYS[config.temperature]
            alike = checks.Alike(client, self._no_nodes[:2])
            temperature, present = yield from self._agreed(
                f"{name}/temperature", server, np.array, alike, present, alike.begin
            )
        outcome.chosen["temperature"] = float(temperature)
        yield Conclusion(f"{name}/temperature", {"temperature": temperature})
        if "raps" in config.scores:
            alike = checks.Alike(conformal.raps_client, self._no_nodes)
            raps, present = yield from self._agreed(
                f"{name}/raps", conformal.raps_server, np.array, alike, present, alike.begin
            )
            outcome.chosen["raps"] = dict(zip(("nu", "k_reg"), raps.tolist(), strict=True))
            yield Conclusion(f"{name}/raps", {"constants": raps})
        check = CalibrationCheck(self._job.cases, self._roster.of("calib"))
        table, outcome.calibrated = yield from self._agreed(
            f"{name}/quantile", self._thresholds, _table, check, present, check.begin
        )
        outcome.thresholds = [conformal.Threshold(*row) for row in json.loads(words(table))]

    @property
    def _no_nodes(self) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float64]]:
        """Outputs, labels and u of a site without validation nodes."""
        labels = len(self._schema.labels)
        return np.empty((0, labels), np.float32), np.empty(0, np.int64), np.empty(0)

    def _thresholds(self) -> Server[list[conformal.Threshold]]:
        return side_by_side(
            [conformal.server_of(rule, alpha) for _, rule, alpha in self._job.cases]
        )

    def _agreed(
        self,
        phase: str,
        server: Callable[[], Server[Any]],
        as_array: Callable[[Any], NDArray[Any]],
        check: Check,
        present: frozenset[int],
        begin: Callable[[Message], None],
    ) -> Conversation[tuple[NDArray[Any], frozenset[int]]]:
        """What a talk came to, and between whom: its sites are the same in all its rounds.

        If one is lost on the way, the talk begins again without it. ``begin`` is told each query.
        """

        def ask() -> Conversation[dict[str, NDArray[Any]]]:
            there = present
            for attempt in range(len(present)):
                talk, replies = server(), None
                try:
                    for round_ in range(_ROUNDS):
                        query = next(talk) if replies is None else talk.send(replies)
                        begin(query)
                        found = yield Request(
                            phase,
                            phase.rpartition("/")[2],
                            attempt * _ROUNDS + round_,
                            query,
                            check,
                            _TALK_BYTES,
                            there,
                        )
                        if there - found.keys():
                            there = frozenset(found)
                            break
                        replies = [found[site] for site in sorted(found)]
                except StopIteration as stop:
                    return {"value": as_array(stop.value), "sites": np.array(sorted(there))}
            raise AssertionError("the conversation's driver lets no round pass without a site")

        found = yield from self._once(phase, ask)
        return found["value"], frozenset(found["sites"].tolist())

    def _sets(self, name: str, outcome: MethodOutcome) -> Conversation[None]:
        """The sites make their sets and keep them; their counts come back."""
        q_hats = np.array([threshold.q_hat for threshold in outcome.thresholds])
        tests, labels = self._roster.of("test"), len(self._schema.labels)
        arrays = checks.Arrays(
            {
                "tally": (np.int64, (len(q_hats), len(TALLIED))),
                "correct": (np.int64, ()),
            }
        )

        def check(site: int, reply: Message) -> str:
            tally = reply["tally"]
            upper = np.array([1, 1, labels, 1, 1]) * tests[site]
            if (tally[:, 0] != tests[site]).any():
                return f"counts {tally[0, 0]} test nodes, but has {tests[site]}"
            if (tally < 0).any() or (tally > upper).any() or not 0 <= reply["correct"] <= upper[0]:
                return "has a count that cannot be"
            return ""

        def ask() -> Conversation[dict[str, NDArray[Any]]]:
            replies: Replies = yield Request(
                f"{name}/sets",
                "sets",
                0,
                {"q_hat": q_hats},
                checks.both(arrays, check),
                arrays.nbytes,
                outcome.calibrated,
            )
            sites = sorted(replies)
            return {
                "sites": np.array(sites),
                "tally": np.stack([replies[site]["tally"] for site in sites]),
                "correct": np.array([int(replies[site]["correct"]) for site in sites]),
            }

        found = yield from self._once(f"{name}/sets", ask)
        sites = found["sites"].tolist()
        outcome.tallies = dict(zip(sites, found["tally"], strict=True))
        outcome.correct = dict(zip(sites, found["correct"].tolist(), strict=True))

    def _once(
        self, phase: str, ask: Callable[[], Conversation[dict[str, NDArray[Any]]]]
    ) -> Conversation[dict[str, NDArray[Any]]]:
        """What was asked before is read from the checkpoint."""
        found = self._checkpoint.read(phase)
        if found is None:
            found = yield from ask()
            self._checkpoint.write(phase, found)
        return found


def _table(thresholds: list[conformal.Threshold]) -> NDArray[np.uint8]:
    return text(json.dumps([list(astuple(threshold)) for threshold in thresholds]))


_ROUNDS = 256  # more than any talk has
_TALK_BYTES = 1 << 22  # more than a reply in any talk has
