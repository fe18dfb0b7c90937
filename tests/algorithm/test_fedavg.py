"""Which round is kept, and that a coordinator that was killed ends the same."""

from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
import torch

from fedcover.algorithm.fedavg import Progress, alone, fedavg
from fedcover.algorithm.requests import Finish, Keep, Recall, Round, Train
from fedcover.errors import DataError
from fedcover.models import Weights
from fedcover.training.plan import Plan

PLAN = Plan("gcn", classes=2, hidden=1, rounds=4)


def model(value: float) -> Weights:
    return Weights(*(torch.full((1,), float(value)) for _ in range(4)))


def value_of(weights: Weights) -> float:
    return float(weights.first)


class Carrier:
    """Answers from a list of losses: round r leaves the model r + 1, whose loss is the r-th.

    ``kept`` outlives a crash, as a checkpoint does.
    """

    def __init__(self, losses, start: float | None = None) -> None:
        self.losses, self.start = list(losses), start
        self.kept: dict[str, dict] = {}
        self.requests: list = []

    def loss(self, place: int) -> float:
        """Of the model after so many rounds; 0: of the start."""
        return self.losses[place if self.start is not None else place - 1]

    def answer(self, request):
        match request:
            case Recall(part):
                return self.kept.get(part)
            case Keep(part, state):
                self.kept[part] = {k: np.array(v) for k, v in state().items()}
            case Train() if request.plan.average:
                at = 0 if request.model is None else int(value_of(request.model.weights))
                judged = self.loss(at) if at or self.start is not None else nan
                return Round((judged,), model(at + 1) if request.fit else None)
            case Train():
                if not request.fit:
                    return Round((self.loss(0),))
                places = range(request.round + 1, request.round + 1 + request.rounds)
                return Round(tuple(self.loss(place) for place in places))
        return None

    def carry(self, talk, stop_after: int | None = None):
        """Lead the talk to its end; None if it is killed after so many requests."""
        sent, done = None, 0
        try:
            while stop_after is None or done < stop_after:
                request = talk.send(sent)
                self.requests.append(request)
                sent, done = self.answer(request), done + 1
        except StopIteration as stop:
            return stop.value
        return None


def averaged(losses, start=None, **settings):
    carrier = Carrier(losses, start)
    begin = None if start is None else model(start)
    return carrier, carrier.carry(fedavg("p", replace(PLAN, **settings), begin))


def by_themselves(losses, start=None, stride=1, **settings):
    carrier = Carrier(losses, start)
    begin = None if start is None else model(start)
    plan = replace(PLAN, average=False, **settings)
    return carrier, carrier.carry(alone("p", plan, begin, stride=stride))


def test_the_round_with_the_lowest_loss_is_kept():
    carrier, trained = averaged([3.0, 1.0, 2.0, 1.0])
    assert trained.losses == (3.0, 1.0, 2.0, 1.0)
    assert (trained.best, trained.rounds, value_of(trained.model.weights)) == (1, 4, 2.0)
    assert value_of(carrier.requests[-1].model.weights) == 2.0  # what the parties are told
    carrier, trained = by_themselves([3.0, 1.0, 2.0, 1.0])
    assert (trained.best, trained.rounds, trained.model) == (1, 4, None)
    keeps = [r.keep for r in carrier.requests if isinstance(r, Train | Finish)]
    assert keeps == [None, 1, 2, 2, 2]  # after how many rounds the model was best so far


@pytest.mark.parametrize("train", [averaged, by_themselves])
def test_patience_ends_a_training_after_so_many_rounds_without_a_better_one(train):
    carrier, trained = train([3.0, 2.0, 2.5, 2.0, 1.0, 0.5], rounds=6, patience=2)
    assert (trained.losses, trained.best, trained.rounds) == ((3.0, 2.0, 2.5, 2.0), 1, 4)
    assert isinstance(carrier.requests[-1], Finish)


@pytest.mark.parametrize("train", [averaged, by_themselves])
def test_without_validation_nodes_the_last_round_counts(train):
    _, trained = train([nan] * 4, patience=1)
    assert (trained.best, trained.rounds) == (3, 4)


@pytest.mark.parametrize("train", [averaged, by_themselves])
def test_a_diverged_round_is_never_the_best(train):
    _, trained = train([3.0, 2.0, inf, inf])
    assert trained.best == 1


@pytest.mark.parametrize("train", [averaged, by_themselves])
def test_training_that_never_had_a_loss_is_refused(train):
    with pytest.raises(DataError, match="Training diverged"):
        train([inf] * 4)


@pytest.mark.parametrize("train", [averaged, by_themselves])
def test_a_start_that_no_round_improves_is_kept(train):
    _, trained = train([1.0, 2.0, 3.0, 4.0, 5.0], start=0)
    assert (trained.best, trained.rounds, len(trained.losses)) == (0, 4, 5)
    if trained.model is not None:
        assert value_of(trained.model.weights) == 0.0


@pytest.mark.parametrize("patience", [None, 1, 2])
@pytest.mark.parametrize("stride", [2, 3, 9])
def test_several_rounds_at_once_choose_the_same(stride, patience):
    losses = [5.0, 3.0, 4.0, 2.0, 6.0, 1.0]
    _, one = by_themselves(losses, rounds=6, patience=patience)
    carrier, several = by_themselves(losses, stride=stride, rounds=6, patience=patience)
    assert several == one
    trained = [r for r in carrier.requests if isinstance(r, Train)]
    assert all(request.rounds <= stride for request in trained)


@pytest.mark.parametrize("start", [None, 0])
@pytest.mark.parametrize("patience", [None, 1])
@pytest.mark.parametrize("kind", ["fed", "alone", "alone, two at once"])
def test_a_conversation_that_is_killed_after_any_request_ends_the_same(start, patience, kind):
    losses = [4.0, 3.0, 5.0, 2.0, 6.0]
    plan = replace(PLAN, patience=patience, average=kind == "fed")
    begin = None if start is None else model(start)

    def talk():
        if kind == "fed":
            return fedavg("p", plan, begin)
        return alone("p", plan, begin, stride=2 if "two" in kind else 1)

    whole = Carrier(losses, start)
    expected = whole.carry(talk())
    for killed_after in range(1, len(whole.requests) + 1):
        carrier = Carrier(losses, start)
        assert carrier.carry(talk(), killed_after) is None
        again = carrier.carry(talk())
        assert (again.losses, again.best, again.rounds) == (
            *(expected.losses, expected.best, expected.rounds),
        )
        assert isinstance(carrier.requests[-1], Finish)
        assert carrier.requests[-1].keep == whole.requests[-1].keep
        if expected.model is not None:
            assert value_of(again.model.weights) == value_of(expected.model.weights)


def test_the_best_entry_is_judged_one_by_one():
    now = Progress(replace(PLAN, patience=2))
    assert not now.ended
    for loss, place, ended in [(3.0, 0, False), (2.0, 1, False), (2.0, 1, False), (4.0, 1, True)]:
        now = now.judged(loss)
        assert (now.best, now.ended) == (place, ended)
