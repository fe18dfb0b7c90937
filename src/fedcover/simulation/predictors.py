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
from fedcover.algorithm.session import Outcome
from fedcover.config import METHODS, Recipe
from fedcover.graphs.assemble import feature_matrix
from fedcover.graphs.partition import ClientGraph, client_graphs
from fedcover.graphs.schema import schema_of
from fedcover.graphs.splits import Role
from fedcover.party import calibration
from fedcover.plans import plan_of
from fedcover.predictor.calibration import POOLED, Calibration, Groups
from fedcover.predictor.inference import Generated, Model, View, planned, rescaled
from fedcover.predictor.nodes import GraphNodes, RunNodes, fingerprints, hashed, inside, salt_of
from fedcover.predictor.predictor import Predictor
from fedcover.simulation.evaluation import Judge
from fedcover.simulation.repetition import Federation
from fedcover.training.plan import PartyGraph, log_prior


def kept(recipe: Recipe) -> bool:
    """Whether a predictor can be made of it: not of a simulation."""
    return not METHODS[recipe.base].simulation


class Maker:
    """Makes the predictors of one repetition; what they have in common is computed once."""

    def __init__(self, graph: Data, judge: Judge) -> None:
        """``graph`` as it was read, before any scaling."""
        self._graph, self._judge = graph, judge

    def predictor(
        self, federation: Federation, outcome: Outcome, card: Mapping[str, Any]
    ) -> Predictor:
        """The recipe's models with their calibration."""
        graph, repetition, config = self._graph, self._judge.repetition, self._judge.config
        partition, recipe, found = repetition.partition, outcome.recipe, outcome.calibrated
        method, parties = str(recipe), federation.trained
        whole = len(parties) == 1 and partition.clients > 1
        known = self._seen_whole if whole else self._known
        graphs = [party.graph_of(recipe.models["shared"]) for party in parties]
        mixture = None
        if recipe.personal == "mix":
            mixture = np.stack([calibration.mixture_weights(p, method) for p in parties])
        predictor = Predictor(
            method=method,
            seed=repetition.seed,
            labels=tuple(graph.label_names),
            features=int(feature_matrix(graph).shape[1]),
            clients=tuple(partition.names),
            given=partition.method == "given",
            whole=whole,
            models=_models(federation, outcome, graphs),
            mixture=mixture,
            generated=_generated(graphs, self._parts(whole), known.names),
            temperature=found.temperature,
            raps=found.raps,
            empty_sets=bool(config.empty_sets),
            diffusion=found.diffusion,
            quantiles=tuple(config.quantiles),
            shares=tuple(map(float, found.shares)) if found.shares is not None else None,
            calibrations={},
            known=known,
            schema=schema_of(graph) if "columns" in graph else None,
            scaling=parties[0].scaling,
            gaps=tuple(np.unique(graph.missing.numpy()[1]).tolist()) if "missing" in graph else (),
            group=graph.get("group_column", None),
            card=card,
        )
        similar = None
        if any(conformal.GRAPH_SCORES[name].similar for name in found.diffusion):
            similar = [calibration.similar(party) for party in parties]
        scaled = rescaled(self._graph, parties[0].scaling)
        view = View(predictor, scaled, GraphNodes.same(known), similar)
        if similar is not None:
            predictor = replace(predictor, known=replace(known, alike=view.alike_prints()))
        return replace(predictor, calibrations=self._calibrations(view))

    def _parts(self, whole: bool) -> list[ClientGraph]:
        graph = self._graph
        if whole:
            return [ClientGraph(np.arange(int(graph.num_nodes)), graph.edge_index.numpy())]
        return client_graphs(graph, self._judge.repetition.partition)

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
            repetition.u,
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
    def _groups(self) -> Groups | None:
        """Of all nodes, where groups have thresholds."""
        if (kind := self._judge.config.calibrate) == POOLED:
            return None
        graph, partition = self._judge.repetition.graph, self._judge.repetition.partition
        members = {
            "client": (partition.client, partition.names),
            "class": (graph.y.numpy(), tuple(graph.label_names)),
        }
        if kind == "group":
            return Groups(kind, tuple(graph.group_names), graph.group.numpy())
        member, names = members[kind]
        return Groups(kind, names, member)

    def _calibrations(self, view: View) -> dict[str, Calibration]:
        """The calibration scores as the predictor itself computes them: a node that ties with the
        threshold in the run ties with it later."""
        repetition, y, groups = self._judge.repetition, self._judge.y, self._groups
        calib, partition = np.flatnonzero(repetition.roles == Role.CALIB), repetition.partition
        if groups is not None:
            groups = replace(groups, member=groups.member[calib])
        client, clients = partition.client[calib], partition.clients
        found = {}
        for name in self._judge.config.scores:
            true = view.scores(name)[calib, y[calib]]
            found[name] = Calibration.of(true, client, clients, groups)
        return found


def _models(
    federation: Federation, outcome: Outcome, graphs: Sequence[PartyGraph]
) -> tuple[Model, ...]:
    """The models that are needed to predict: of a recipe that only tunes, the last one."""
    recipe, session = outcome.recipe, federation.session
    speaking = list(recipe.models.items())
    if recipe.personal == "tuned":
        speaking = speaking[-1:]
    found = []
    for kind, part in speaking:
        plan = plan_of(session.config, session.classes, part)
        found.append(
            Model(
                planned(plan),
                [party.weights[part] for party in federation.trained],
                np.stack([log_prior(graph, plan) for graph in graphs]),
                outcome.temperatures.get(kind, 1.0),
            )
        )
    return tuple(found)


def _generated(
    clients: Sequence[PartyGraph], parts: Sequence[ClientGraph], names: NDArray[np.uint64]
) -> tuple[Generated | None, ...]:
    """What was appended to the clients' graphs (see :func:`fedcover.party.augment.augment`)."""
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
