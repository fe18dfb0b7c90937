"""Several repetitions' conversations in step: equal trainings become one program.

Whatever does not depend on the other repetitions (a question, a conclusion) is answered at once; a
round of training waits until all conversations that train the same model have asked for it.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcover import fixed_point
from fedcover.algorithm.requests import Ask, Conversation, Finish, Parallel, Round, Train
from fedcover.carriers.loopback import Loopback
from fedcover.carriers.messages import ALONE, FINISH, START, TRAIN, queries_of, told_by
from fedcover.ledger import split_part
from fedcover.party.answers import SUMS, TOGETHER
from fedcover.training.plan import Federation, Plan, Progress
from fedcover.training.program import Program, mean_loss


@dataclass
class _Training:
    """A program under way, and which repetition's federation stands at which place of it."""

    program: Program
    place: dict[int, int]
    asked: Counter[int] = field(default_factory=Counter)  # requests of each repetition
    fitted: Counter[int] = field(default_factory=Counter)  # those with training among them


class Lockstep:
    """Leads the conversations of some repetitions, by their number."""

    def __init__(self, repetitions: Mapping[int, Loopback], report: Progress) -> None:
        self._repetitions, self._report = repetitions, report
        self._trainings: dict[tuple[str, Plan], _Training] = {}  # seeds may choose their plans

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
            for number, sent in self._together(waiting).items():
                go_on(number, sent)
        return results

    def _answer(self, number: int, request: Any) -> Any:
        """What concerns one repetition alone."""
        one = self._repetitions[number]
        if not isinstance(request, Ask):
            return one.at_once(request)
        if request.verb not in SUMS:
            return one.ask(request)
        # The sum is found without its terms, each of which looks like it.
        queries = queries_of(request, one.census)
        asked = [party for party in one.parties if party.number in queries]
        own = [queries[party.number] for party in asked]
        total = SUMS[request.verb](asked, request.round, own)
        one.record(request, queries, dict.fromkeys(queries, total))
        return fixed_point.add([total])

    # What several repetitions do together.

    def _together(self, waiting: Mapping[int, Any]) -> dict[int, Any]:
        """Answer the requests that are alike, those first that others may still join."""
        kinds: dict[type, Callable[[Any], dict[int, Any]]] = {
            Train: self._train,
            Ask: self._ask_all,
            Finish: self._finish,
            Parallel: self._parallel,
        }
        first = min(waiting.values(), key=lambda request: list(kinds).index(type(request)))
        alike = {n: r for n, r in waiting.items() if _key(r) == _key(first)}
        return kinds[type(first)](alike)

    def _parallel(self, batch: Mapping[int, Parallel]) -> dict[int, Any]:
        """One talk after another, each of all repetitions that have it."""
        found: dict[int, dict[str, Any]] = {number: {} for number in batch}
        for name in dict.fromkeys(name for request in batch.values() for name in request.talks):
            talks = {n: r.talks[name] for n, r in batch.items() if name in r.talks}
            for number, result in self.carry(talks).items():
                found[number][name] = result
        return found

    def _ask_all(self, batch: Mapping[int, Ask]) -> dict[int, Any]:
        """Questions that all parties of all repetitions work on as one program."""
        request = next(iter(batch.values()))
        everybody = [party for number in batch for party in self._repetitions[number].parties]
        queries = {n: queries_of(one, self._repetitions[n].census) for n, one in batch.items()}
        flat = [query for own in queries.values() for query in own.values()]
        answers = iter(TOGETHER[request.verb](everybody, request.round, flat, self._report))
        found = {n: {k: next(answers) for k in own} for n, own in queries.items()}
        for number, replies in found.items():
            self._repetitions[number].record(batch[number], queries[number], replies)
        return found

    def _train(self, batch: Mapping[int, Train]) -> dict[int, Any]:
        request = next(iter(batch.values()))
        key = request.part, request.plan
        if key not in self._trainings:
            self._trainings[key] = self._begin(batch)
        training, averaged = self._trainings[key], request.plan.average
        program, place = training.program, training.place
        if keep := [place[n] for n, one in batch.items() if one.keep == request.round]:
            program.keep(keep)
        losses = [float("nan")] * len(place)
        if averaged and request.model is not None:  # else drawn from the seed; nobody judges it
            losses = _means(program)
        training.asked.update(batch.keys())
        if request.fit:
            program.fit(request.round)
            if averaged:
                program.average()
            training.fitted.update(batch.keys())
            self._report(_stage(request.part), request.round + 1, request.plan.rounds)
        if not averaged:
            losses = _means(program)
        new = averaged and request.fit
        return {
            n: Round((losses[place[n]],), program.shared(place[n]) if new else None) for n in batch
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
        program = Program(federations, request.plan, start or None)
        return _Training(program, {number: place for place, number in enumerate(batch)})

    def _finish(self, batch: Mapping[int, Finish]) -> dict[int, Any]:
        request = next(iter(batch.values()))
        training = self._trainings.pop((request.part, request.plan))
        # Whoever ran out of patience has done all rounds that there will be.
        self._report(_stage(request.part), request.plan.rounds, request.plan.rounds)
        program, place = training.program, training.place
        for number, one in batch.items():
            repetition = self._repetitions[number]
            repetition.seconds[request.part] = program.seconds / len(place)
            _record_training(repetition, one, training, number)
        if request.plan.average:
            if request.model is None:
                return dict.fromkeys(batch)
            shared = [batch[n].model.weights for n in place]  # type: ignore[union-attr]
            logits = program.logits(shared)
            models = [[weights] * len(own) for weights, own in zip(shared, logits, strict=True)]
        else:
            if keep := [place[n] for n, one in batch.items() if one.keep == training.fitted[n]]:
                program.keep(keep)
            logits, models = program.logits(), program.own_weights()
        for number in batch:
            own = zip(models[place[number]], logits[place[number]], strict=True)
            for party, (weights, rows) in zip(self._repetitions[number].parties, own, strict=True):
                party.has_model(request.part, weights, rows)
        return dict.fromkeys(batch)


def _record_training(one: Loopback, request: Finish, training: _Training, number: int) -> None:
    """The messages of a whole training, as they would have travelled."""
    asked, fitted = training.asked[number], training.fitted[number]
    part, plan, ledger = request.part, request.plan, one.ledger
    dtype = str(plan.dtype).removeprefix("torch.")
    down, up = (_like(training.program.weight_shapes, kind) for kind in (dtype, "int64"))
    loss = _like({"loss": (1,), "count": (1,)}, "int64")
    queries = queries_of(Train(part, plan, 0), one.census)
    started = 0 if plan.average else asked - fitted
    for party in one.parties:
        place, words = (part, TRAIN if plan.average else ALONE, party.number), queries[party.number]
        if started:
            ledger.record(part, START, party.number, 0, "down", words)
            ledger.record(part, START, party.number, 0, "up", loss)
        ledger.record(*place, 0, "down", words, rounds=asked - started)
        if plan.average and asked > 1:
            ledger.record(*place, 1, "down", down, rounds=asked - 1)
        ledger.record(*place, 0, "up", loss, rounds=asked - started)
        if plan.average:
            ledger.record(*place, 0, "up", up, rounds=fitted)
        ledger.record(part, FINISH, party.number, 0, "down", told_by(request))


def _shared(request: Any) -> bool:
    """Whether repetitions may do it together."""
    if isinstance(request, Ask):
        return request.verb in TOGETHER
    return isinstance(request, Train | Finish | Parallel)


def _key(request: Any) -> tuple[Any, ...]:
    """What requests that are alike have in common; all parallel ones are."""
    return type(request), *(
        getattr(request, name, None) for name in ("part", "plan", "round", "fit")
    )


def _means(program: Program) -> list[float]:
    totals, counts = program.losses()
    return [mean_loss(int(t), int(c)) for t, c in zip(totals, counts, strict=True)]


def _like(shapes: Mapping[str, tuple[int, ...]], kind: str) -> dict[str, NDArray[Any]]:
    """Arrays of these shapes that take no memory."""
    zero = np.zeros((), dtype=kind)
    return {name: np.broadcast_to(zero, shape) for name, shape in shapes.items()}


def _stage(part: str) -> str:
    """What a progress bar calls the training of a part."""
    name, step = split_part(part)
    words = {"shared": "train", "links": "VGAE", "cell": "choice", "decay": "choice"}
    return f"{words.get(step, step)} {name}"
