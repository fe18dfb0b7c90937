"""Several repetitions' conversations in step: equal trainings become one program.

Whatever does not depend on the other repetitions (a question, a conclusion) is answered at once; a
round of training waits until all conversations that train the same model have asked for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcover import fixed_point
from fedcover.algorithm.calibrate import Census
from fedcover.algorithm.requests import (
    Ask,
    Conversation,
    Finish,
    Keep,
    Parallel,
    Recall,
    Round,
    Sum,
    Tell,
    Train,
)
from fedcover.carriers.messages import ALONE, START, TRAIN, query_of, told_by
from fedcover.conformal.protocol import Message
from fedcover.ledger import Ledger
from fedcover.party.party import Party
from fedcover.party.together import SUMS, TOGETHER
from fedcover.training.plan import Federation, Progress
from fedcover.training.program import Program, mean_loss


@dataclass
class Repetition:
    """One repetition's parties and its account."""

    parties: Sequence[Party]
    ledger: Ledger = field(default_factory=Ledger)
    seconds: dict[str, float] = field(default_factory=dict)  # of training, by part

    @cached_property
    def census(self) -> Census:
        """How many nodes each party has."""
        return Census({party.number: party.data.counts for party in self.parties})


@dataclass
class _Training:
    """A program under way, and whose federations are in it, by place."""

    program: Program
    members: list[int]
    asked: dict[int, int] = field(default_factory=dict)  # requests of each repetition
    fitted: dict[int, int] = field(default_factory=dict)  # those with training among them


class Lockstep:
    """Leads the conversations of some repetitions, by their number."""

    def __init__(self, repetitions: Mapping[int, Repetition], report: Progress) -> None:
        self._repetitions, self._report = repetitions, report
        self._trainings: dict[str, _Training] = {}

    def carry(self, talks: Mapping[int, Conversation[Any]]) -> dict[int, Any]:
        """What each conversation returns."""
        results: dict[int, Any] = {}
        waiting: dict[int, Any] = {}

        def go_on(number: int, sent: Any) -> None:
            """Answer what can be answered at once; stop at what others may share."""
            try:
                request = talks[number].send(sent)
                while not _shared(request):
                    request = talks[number].send(self._answer(number, request))
                waiting[number] = request
            except StopIteration as stop:
                waiting.pop(number, None)
                results[number] = stop.value

        for number in talks:
            go_on(number, None)
        while waiting:
            batch = _next_batch(waiting)
            for number, sent in self._together(batch).items():
                go_on(number, sent)
        return results

    def _answer(self, number: int, request: Any) -> Any:
        """What concerns one repetition alone."""
        one = self._repetitions[number]
        match request:
            case Recall() | Keep():
                return None
            case Tell():
                for party in one.parties:
                    arrays = {**request.arrays, **request.own.get(party.number, {})}
                    one.ledger.record(request.part, "", party.number, 0, "down", arrays)
                    party.tell(request.part, arrays)
                return None
        asked = [p for p in one.parties if request.to is None or p.number in request.to]
        queries = {p.number: query_of(request, p.number, one.census) for p in asked}
        if request.verb in SUMS:  # found without its terms, each of which looks like it
            total = SUMS[request.verb](asked, request.round, request.query)
            self._record(one, request, queries, dict.fromkeys(queries, total))
            return total
        replies = {
            p.number: p.answer(request.part, request.verb, request.round, queries[p.number])
            for p in asked
        }
        self._record(one, request, queries, replies)
        return fixed_point.add(replies.values()) if isinstance(request, Sum) else replies

    def _record(
        self,
        one: Repetition,
        request: Ask,
        queries: Mapping[int, Message],
        replies: Mapping[int, Message],
    ) -> None:
        place = (request.part, request.verb)
        for number, reply in replies.items():
            one.ledger.record(*place, number, request.round, "down", queries[number])
            one.ledger.record(*place, number, request.round, "up", reply)

    # What several repetitions do together.

    def _together(self, batch: Mapping[int, Any]) -> dict[int, Any]:
        match next(iter(batch.values())):
            case Parallel():
                return self._parallel(batch)
            case Train():
                return self._train(batch)
            case Finish():
                return self._finish(batch)
        return self._ask_all(batch)

    def _parallel(self, batch: Mapping[int, Parallel]) -> dict[int, Any]:
        """One talk after another, each of all repetitions that have it."""
        found: dict[int, dict[str, Any]] = {number: {} for number in batch}
        names = dict.fromkeys(name for request in batch.values() for name in request.talks)
        for name in names:
            talks = {n: r.talks[name] for n, r in batch.items() if name in r.talks}
            for number, result in self.carry(talks).items():
                found[number][name] = result
        return found

    def _ask_all(self, batch: Mapping[int, Ask]) -> dict[int, Any]:
        """Questions that all parties of all repetitions work on as one program."""
        request = next(iter(batch.values()))
        everybody = [party for number in batch for party in self._repetitions[number].parties]
        queries: dict[int, dict[int, Message]] = {}
        for number, asked in batch.items():
            one = self._repetitions[number]
            numbers = [party.number for party in one.parties]
            queries[number] = {k: query_of(asked, k, one.census) for k in numbers}
        flat = [query for own in queries.values() for query in own.values()]
        answers = iter(TOGETHER[request.verb](everybody, request.round, flat, self._report))
        found = {n: {k: next(answers) for k in own} for n, own in queries.items()}
        for number, replies in found.items():
            self._record(self._repetitions[number], batch[number], queries[number], replies)
        return found

    def _train(self, batch: Mapping[int, Train]) -> dict[int, Any]:
        request = next(iter(batch.values()))
        training = self._trainings.get(request.part)
        if training is None:
            training = self._trainings[request.part] = self._begin(batch)
        program, place = training.program, {n: f for f, n in enumerate(training.members)}
        losses: list[float] = [float("nan")] * len(place)
        if request.plan.average:
            if request.model is not None:  # else it is drawn from the seed, and nobody judges it
                losses = _means(program)
            if request.fit:
                program.fit(request.round)
                program.average()
        else:
            keep = [place[n] for n, one in batch.items() if one.keep == request.round]
            if keep:
                program.keep(keep)
            if request.fit:
                program.fit(request.round)
            losses = _means(program)
        for number, one in batch.items():
            training.asked[number] = training.asked.get(number, 0) + 1
            training.fitted[number] = training.fitted.get(number, 0) + one.fit
        if request.fit:
            self._report(_stage(request.part), request.round + 1, request.plan.rounds)
        averaged = request.plan.average and request.fit
        return {
            n: Round((losses[place[n]],), program.shared(place[n]) if averaged else None)
            for n in batch
        }

    def _begin(self, batch: Mapping[int, Train]) -> _Training:
        request = next(iter(batch.values()))
        federations, start = [], []
        for number, one in batch.items():
            parties = self._repetitions[number].parties
            graphs = [party.graph_of(request.part) for party in parties]
            federations.append(Federation(graphs, parties[0].data.seed))
            if one.model is not None:
                start.append(one.model.weights)
        return _Training(Program(federations, request.plan, start or None), list(batch))

    def _finish(self, batch: Mapping[int, Finish]) -> dict[int, Any]:
        request = next(iter(batch.values()))
        training = self._trainings.pop(request.part)
        program, place = training.program, {n: f for f, n in enumerate(training.members)}
        for number, one in batch.items():
            repetition = self._repetitions[number]
            share = program.seconds / len(training.members)
            repetition.seconds[request.part] = share
            self._record_training(repetition, one, training, number)
        if request.plan.average:
            if request.model is None:
                return dict.fromkeys(batch)
            shared = [batch[n].model.weights for n in training.members]  # type: ignore[union-attr]
            logits = program.logits(shared)
            models = [[weights] * len(own) for weights, own in zip(shared, logits, strict=True)]
        else:
            keep = [place[n] for n, one in batch.items() if one.keep == training.fitted[n]]
            if keep:
                program.keep(keep)
            logits, models = program.logits(), program.own_weights()
        for number in batch:
            own = zip(models[place[number]], logits[place[number]], strict=True)
            for party, (weights, rows) in zip(self._repetitions[number].parties, own, strict=True):
                party.has_model(request.part, weights, rows)
        return dict.fromkeys(batch)

    def _record_training(
        self, one: Repetition, request: Finish, training: _Training, number: int
    ) -> None:
        """The messages of a whole training, as they would have travelled."""
        asked, fitted = training.asked[number], training.fitted[number]
        part, average, ledger = request.part, request.plan.average, one.ledger
        model = training.program.weight_shapes
        dtype = np.dtype("float32" if "32" in str(request.plan.dtype) else "float64")
        down = {name: _like(shape, dtype) for name, shape in model.items()}
        up = {name: _like(shape, np.dtype(np.int64)) for name, shape in model.items()}
        loss = {name: _like((1,), np.dtype(np.int64)) for name in ("loss", "count")}
        verb, words = (
            (TRAIN if average else ALONE),
            query_of(Train(part, request.plan, 0), 0, one.census),
        )
        started = asked - fitted if not average else 0
        for party in one.parties:
            place = (part, verb, party.number)
            if started:
                ledger.record(part, START, party.number, 0, "down", words)
                ledger.record(part, START, party.number, 0, "up", loss)
            ledger.record(*place, 0, "down", words, rounds=asked - started)
            if average and asked > 1:
                ledger.record(*place, 1, "down", down, rounds=asked - 1)
            ledger.record(*place, 0, "up", loss, rounds=asked - started)
            if average:
                ledger.record(*place, 0, "up", up, rounds=fitted)
            ledger.record(part, "finish", party.number, 0, "down", told_by(request))


def _shared(request: Any) -> bool:
    """Whether repetitions may do it together."""
    if isinstance(request, Ask):
        return request.verb in TOGETHER
    return isinstance(request, Train | Finish | Parallel)


def _next_batch(waiting: Mapping[int, Any]) -> dict[int, Any]:
    """The requests that are alike, those first that others may still join."""
    for kind in (Train, Ask, Finish, Parallel):
        of_kind = {n: r for n, r in waiting.items() if isinstance(r, kind)}
        if not of_kind:
            continue
        if kind is Parallel:
            return of_kind
        first = next(iter(of_kind.values()))
        return {n: r for n, r in of_kind.items() if _key(r) == _key(first)}
    raise AssertionError("somebody waits for nothing")


def _key(request: Any) -> tuple[Any, ...]:
    return request.part, getattr(request, "round", 0), getattr(request, "fit", None)


def _means(program: Program) -> list[float]:
    totals, counts = program.losses()
    return [mean_loss(int(t), int(c)) for t, c in zip(totals, counts, strict=True)]


def _like(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array of this shape that takes no memory."""
    return np.broadcast_to(np.zeros((), dtype=dtype), shape)


def _stage(part: str) -> str:
    """What a progress bar calls the training of a part."""
    name, _, step = part.rpartition("/")
    if step.startswith("cell"):
        return f"choice {name}"
    return f"{ {'shared': 'train', 'links': 'VGAE'}.get(step, step) } {name}"
