"""All clients of all given federations trained as one program."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch

from fedcover.federation.validation import Best, Validation
from fedcover.models import Weights, initial_weights
from fedcover.training.averaging import Averaging
from fedcover.training.optimiser import Optimiser
from fedcover.training.plan import Federation, OnRound, Plan, Trained, diverged, initialiser
from fedcover.training.receptive_field import Field
from fedcover.training.stack import Stack


@torch.no_grad()
def train_stack(
    federations: Sequence[Federation],
    plan: Plan,
    begin: Sequence[Weights] | None = None,
    on_round: OnRound | None = None,
) -> list[Trained]:
    """Train all clients of all these federations together; one result for each federation."""
    began = time.perf_counter()
    stack = Stack(federations, plan)
    averaging = Averaging(stack)
    size = (stack.features, plan.hidden, plan.classes)
    drawn = begin or [initial_weights(plan.model, *size, initialiser(f.seed)) for f in federations]
    start = averaging.shared([weights.to(plan.dtype) for weights in drawn])
    shared, local = start, averaging.broadcast(start)
    optimiser = Optimiser(stack, local)
    validation = Validation(stack)
    best = Best(
        shared if plan.average else local,
        averaging.federation_of_rows(shared=plan.average),
        validation.count > 0,
        plan.patience,
    )
    if begin is not None:
        best.update(validation.losses(local), shared if plan.average else local)
    for round_ in range(plan.rounds):
        optimiser.round(local, round_)
        if plan.average:
            shared = averaging.average(local, shared)
            averaging.broadcast(shared, into=local)
        best.update(validation.losses(local), shared if plan.average else local)
        if on_round is not None:
            on_round(round_ + 1)
        if not best.waiting.any():
            break
    if (best.round < 0).any():
        raise diverged()
    local = averaging.broadcast(best.kept) if plan.average else best.kept
    logits = Field(stack, np.arange(len(stack.y))).logits(local).numpy()
    by_client = np.split(logits, stack.starts[1:-1])
    seconds = (time.perf_counter() - began) / len(federations)

    results = []
    for f in range(len(federations)):
        places = np.flatnonzero(stack.federation_of == f)
        places = places[np.argsort(stack.number_of[places])]
        if plan.average:
            weights = [averaging.weights(best.kept, f)] * len(places)
        else:
            weights = [averaging.client_weights(local, start, int(k)) for k in places]
        history = np.array([losses[f] for losses in best.history[: best.entries[f]]])
        mine, rounds = [by_client[k] for k in places], len(history) - (begin is not None)
        results.append(Trained(weights, mine, history, int(best.round[f]), rounds, seconds))
    return results
