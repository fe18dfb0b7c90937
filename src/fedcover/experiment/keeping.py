"""From a trained and judged recipe to the predictor that a run folder keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
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
from fedcover.federation import PartyGraph
from fedcover.graphs.assemble import feature_matrix
from fedcover.graphs.partition import ClientGraph
from fedcover.graphs.schema import schema_of
from fedcover.graphs.splits import Role
from fedcover.predictor.calibration import POOLED, Calibration, Groups
from fedcover.predictor.inference import Generated, Model, View, planned, rescaled
from fedcover.predictor.nodes import GraphNodes, RunNodes, fingerprints, hashed, inside, salt_of
from fedcover.predictor.predictor import Predictor
from fedcover.training.plan import log_prior

SPEAKING: dict[Personal, tuple[str, ...]] = {**KINDS, "tuned": ("tuned",)}
"""Which of a recipe's models are needed to predict."""


def kept(recipe: Recipe) -> bool:
    """Whether a predictor can be made of it: not of a simulation."""
    return not recipe.method.simulation


class Keeper:
    """Makes the predictors of one repetition; what they have in common is computed once."""

    def __init__(self, graph: Data, judge: Judge) -> None:
        """``graph`` as it was read, before any scaling."""
        self._graph, self._judge = graph, judge

    def predictor(
        self, recipe: Recipe, outcome: Outcome, evaluation: Evaluation, card: Mapping[str, Any]
    ) -> Predictor:
        """The recipe's models with their calibration."""
        graph, repetition, config = self._graph, self._judge.repetition, self._judge.config
        partition = repetition.partition
        federation, parts = outcome.prepared.federation, outcome.prepared.parts
        whole = len(parts) == 1 and partition.clients > 1
        known = self._seen_whole if whole else self._known
        shares = evaluation.mixture
        predictor = Predictor(
            method=str(recipe),
            seed=repetition.seed,
            labels=tuple(graph.label_names),
            features=int(feature_matrix(graph).shape[1]),
            clients=tuple(partition.names),
            given=partition.method == "given",
            whole=whole,
            models=_models(recipe, outcome),
            mixture=np.array(outcome.chosen["mixture"]) if recipe.personal == "mix" else None,
            generated=_generated(federation.clients, parts, known.names),
            temperature=evaluation.temperature,
            raps=evaluation.raps,
            empty_sets=bool(config.empty_sets),
            diffusion=evaluation.diffusion,
            quantiles=tuple(config.quantiles),
            shares=tuple(map(float, shares)) if shares is not None else None,
            calibrations={},
            known=known,
            schema=schema_of(graph) if "columns" in graph else None,
            scaling=repetition.scaling,
            gaps=tuple(np.unique(graph.missing.numpy()[1]).tolist()) if "missing" in graph else (),
            group=graph.get("group_column", None),
            card=card,
        )
        similar = None
        if any(conformal.GRAPH_SCORES[name].similar for name in evaluation.diffusion):
            similar = self._judge.neighbourhoods.similar(parts)
        view = View(predictor, self._rescaled, GraphNodes.same(known), similar)
        if similar is not None:
            predictor = replace(predictor, known=replace(known, alike=view.alike_prints()))
        return replace(predictor, calibrations=self._calibrations(view))

    @cached_property
    def _known(self) -> RunNodes:
        graph, repetition, groups = self._graph, self._judge.repetition, self._groups
        salt, client = salt_of(graph), repetition.partition.client.astype(np.int64)
        names = hashed(graph.node_ids, salt)
        return RunNodes(
            salt,
            names,
            client,
            repetition.roles.astype(np.int8),
            self._judge.u,
            fingerprints(graph, names, salt, inside(graph, client, whole=False)),
            group=groups.member if groups is not None and groups.kind == "group" else None,
        )

    @cached_property
    def _seen_whole(self) -> RunNodes:
        """The same for models that see the edges between clients, too."""
        graph, known = self._graph, self._known
        edges = inside(graph, known.client, whole=True)
        return replace(known, print=fingerprints(graph, known.names, known.salt, edges))

    @cached_property
    def _rescaled(self) -> Data:
        return rescaled(self._graph, self._judge.repetition.scaling)

    @cached_property
    def _groups(self) -> Groups | None:
        """Of all nodes, where groups have thresholds."""
        if (kind := self._judge.config.calibrate) == POOLED:
            return None
        member, names = membership(kind, self._judge.repetition)
        return Groups(kind, names, member)

    def _calibrations(self, view: View) -> dict[str, Calibration]:
        """The calibration scores as the predictor itself computes them: a node that ties with the
        threshold in the run ties with it later."""
        repetition, y, groups = self._judge.repetition, self._judge.y, self._groups
        calib, partition = np.flatnonzero(repetition.roles == Role.CALIB), repetition.partition
        if groups is not None:
            groups = replace(groups, member=groups.member[calib])
        found = {}
        for name in self._judge.config.scores:
            true = view.scores(name)[calib, y[calib]]
            found[name] = Calibration.of(true, partition.client[calib], partition.clients, groups)
        return found


def _models(recipe: Recipe, outcome: Outcome) -> tuple[Model, ...]:
    clients = outcome.prepared.federation.clients
    return tuple(
        Model(
            planned(outcome.plans[kind]),
            outcome.models[kind].weights,
            np.stack([log_prior(client, outcome.plans[kind]) for client in clients]),
            outcome.temperatures.get(kind, 1.0),
        )
        for kind in SPEAKING[recipe.personal]
    )


def _generated(
    clients: Sequence[PartyGraph], parts: Sequence[ClientGraph], names: NDArray[np.uint64]
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
