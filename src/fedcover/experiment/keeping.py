"""From a trained and judged recipe to the predictor that a run folder keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from torch_geometric.data import Data

from fedcover import conformal
from fedcover.experiment.calibration import membership
from fedcover.experiment.evaluation import Evaluation, Judge
from fedcover.experiment.recipes import Personal, Recipe
from fedcover.experiment.training import KINDS, Outcome
from fedcover.federation import Client
from fedcover.federation.engine import log_prior
from fedcover.graphs.assemble import feature_matrix
from fedcover.graphs.partition import ClientGraph
from fedcover.graphs.schema import schema_of
from fedcover.graphs.splits import Role
from fedcover.personal.correction import hold_out
from fedcover.predictor.calibration import POOLED, Calibration, Groups
from fedcover.predictor.known import Known, fingerprints, hashed, salt_of
from fedcover.predictor.models import Generated, Model, planned
from fedcover.predictor.predictor import Predictor
from fedcover.predictor.view import View

SPEAKING: dict[Personal, tuple[str, ...]] = {**KINDS, "tuned": ("tuned",)}
"""Which of a recipe's models are needed to predict."""


def kept(recipe: Recipe) -> bool:
    """Whether a predictor can be made of it: not of a simulation."""
    return not recipe.method.simulation


def predictor_of(
    recipe: Recipe,
    graph: Data,
    judge: Judge,
    outcome: Outcome,
    evaluation: Evaluation,
    card: Mapping[str, Any],
) -> Predictor:
    """The recipe's models with their calibration; ``graph`` as it was read, before any scaling."""
    repetition, config = judge.repetition, judge.config
    partition = repetition.partition
    salt = salt_of(graph)
    names = hashed(graph.node_ids, salt)
    federation, parts = outcome.prepared.federation, outcome.prepared.parts
    trained = federation.clients
    if recipe.personal == "corrected":  # its base model knows the nodes that are not held out
        trained = hold_out(federation, config.personal.correction_share).base.clients
    models = tuple(
        Model(
            planned(outcome.plans[kind]),
            outcome.models[kind].weights,
            np.stack([log_prior(client, outcome.plans[kind]) for client in trained]),
            outcome.temperatures.get(kind, 1.0),
            corrects=kind == "correction",
        )
        for kind in SPEAKING[recipe.personal]
    )
    predictor = Predictor(
        method=str(recipe),
        seed=repetition.seed,
        labels=tuple(graph.label_names),
        features=int(feature_matrix(graph).shape[1]),
        clients=tuple(partition.names),
        given=partition.method == "given",
        whole=len(parts) == 1 and partition.clients > 1,
        models=models,
        mixture=np.array(outcome.chosen["mixture"]) if recipe.personal == "mix" else None,
        generated=_generated(federation.clients, parts, names),
        temperature=evaluation.temperature,
        raps=evaluation.raps,
        empty_sets=bool(config.empty_sets),
        diffusion=evaluation.diffusion,
        quantiles=tuple(config.quantiles),
        shares=tuple(map(float, evaluation.mixture)) if evaluation.mixture is not None else None,
        calibrations={},
        known=Known(
            salt,
            names,
            partition.client.astype(np.int64),
            repetition.roles.astype(np.int8),
            judge.u,
            fingerprints(graph, names, salt),
        ),
        schema=schema_of(graph) if "columns" in graph else None,
        scaling=repetition.scaling,
        gaps=tuple(np.unique(graph.missing.numpy()[1]).tolist()) if "missing" in graph else (),
        group=graph.get("group_column", None),
        card=card,
    )
    view = predictor.view(graph)
    if any(conformal.GRAPH_SCORES[name].similar for name in evaluation.diffusion):
        predictor = replace(predictor, known=replace(predictor.known, alike=view.alike_prints()))
    return replace(predictor, calibrations=_calibrations(view, judge))


def _generated(
    clients: Sequence[Client], parts: Sequence[ClientGraph], names: NDArray[np.uint64]
) -> tuple[Generated | None, ...]:
    """What was appended to the clients' graphs (see :func:`fedcover.neighbors.augment.augment`)."""
    found: list[Generated | None] = []
    for client, part in zip(clients, parts, strict=True):
        own = client.own
        if not client.generated:
            found.append(None)
            continue
        source, target = client.edge_index
        down = (source >= own) & (target < own)
        found.append(
            Generated(
                sparse.csr_array(client.x[own:]),
                source[down] - own,
                names[part.nodes][target[down]],
                client.generated_weight,
            )
        )
    return tuple(found)


def _calibrations(view: View, judge: Judge) -> dict[str, Calibration]:
    """The calibration scores as the predictor itself computes them: a node that ties with the
    threshold in the run ties with it later."""
    repetition = judge.repetition
    calib, y = np.flatnonzero(repetition.roles == Role.CALIB), judge.y
    partition, groups = repetition.partition, None
    if (kind := judge.config.calibrate) != POOLED:
        member, names = membership(kind, repetition)
        groups = Groups(kind, names, member[calib])
    found = {}
    for name in judge.config.scores:
        true = view.scores(name)[calib, y[calib]]
        found[name] = Calibration.of(true, partition.client[calib], partition.clients, groups)
    return found
