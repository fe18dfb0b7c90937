"""From a trained and judged recipe to the predictor that a run folder keeps."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedcover import conformal
from fedcover.algorithm.session import Outcome
from fedcover.graphs.schema import schema_of
from fedcover.graphs.splits import Role
from fedcover.party import calibration
from fedcover.plans import plan_of
from fedcover.predictor import nodes
from fedcover.predictor.calibration import Calibration
from fedcover.predictor.inference import PLANNED, Model, View, rescaled
from fedcover.predictor.predictor import Predictor
from fedcover.simulation.evaluation import Judge
from fedcover.simulation.repetition import Federation
from fedcover.training.plan import PartyGraph, Plan, log_prior


class Maker:
    """Makes the predictors of one repetition; what they have in common is computed once."""

    def __init__(self, judge: Judge) -> None:
        self._graph, self._judge = judge.repetition.graph, judge

    @cached_property
    def _known(self) -> nodes.RunNodes:
        graph, repetition = self._graph, self._judge.repetition
        salt, client = nodes.salt_of(graph), repetition.partition.client.astype(np.int64)
        names, edges = nodes.hashed(graph.node_ids, salt), nodes.inside(graph, client, whole=False)
        prints = nodes.fingerprints(graph, names, salt, edges)
        roles = repetition.roles.astype(np.int8)
        group = graph.group.numpy() if self._judge.config.calibrate == "group" else None
        return nodes.RunNodes(salt, names, client, roles, repetition.u, prints, group=group)

    def predictor(
        self, federation: Federation, outcome: Outcome, card: Mapping[str, Any]
    ) -> Predictor:
        """The recipe's models with their calibration."""
        graph, partition, config = self._graph, self._judge.repetition.partition, self._judge.config
        recipe, found, known = outcome.recipe, outcome.calibrated, self._known
        method, parties, y = str(recipe), federation.parties, self._judge.y
        whole = len(parties) == 1 and partition.clients > 1
        if whole:  # its models see the edges between clients, too
            edges = graph.edge_index.numpy()
            known = replace(known, print=nodes.fingerprints(graph, known.names, known.salt, edges))
        graphs = [party.graph_of(recipe.models["shared"]) for party in parties]
        mixture = similar = None
        if recipe.personal == "mix":
            mixture = np.stack([calibration.mixture_weights(p, method) for p in parties])
        if any(conformal.GRAPH_SCORES[name].similar for name in found.diffusion):
            similar = [calibration.similar(party) for party in parties]
        predictor = Predictor(
            method=method,
            seed=self._judge.repetition.seed,
            labels=tuple(graph.label_names),
            features=int(graph.x.shape[1]),
            clients=tuple(partition.names),
            given=partition.method == "given",
            whole=whole,
            models=_models(federation, outcome, graphs),
            mixture=mixture,
            generated=tuple(
                _generated(own, known.names[whole | (known.client == k)])
                for k, own in enumerate(graphs)
            ),
            temperature=found.temperature,
            raps=found.raps,
            empty_sets=bool(config.empty_sets),
            diffusion=found.diffusion,
            quantiles=tuple(config.quantiles),
            terms=found.terms,
            fixed_shares=config.client_shares is not None,
            max_share=config.max_share,
            calibrations={},
            known=known,
            schema=schema_of(graph) if "columns" in graph else None,
            scaling=parties[0].scaling,
            gaps=tuple(np.unique(graph.missing.numpy()[1]).tolist()) if "missing" in graph else (),
            group=graph.get("group_column", None),
            match=graph.get("match_column", None),
            card=card,
        )
        scaled = rescaled(graph, predictor.scaling)
        view = View(predictor, scaled, nodes.GraphNodes.same(known), similar)
        if similar is not None:
            known = replace(known, alike=view.alike_prints())
        calib, groups = known.role == Role.CALIB, self._judge.kinds.get(config.calibrate)
        if groups is not None:
            groups = replace(groups, member=groups.member[calib])
        # The scores as the predictor itself computes them: a node that ties with the threshold in
        # the run ties with it later.
        true = {name: view.scores(name)[calib, y[calib]] for name in config.scores}
        client = federation.client.astype(np.int64)  # one owner calibrates as one party
        calibrations = {
            name: Calibration.of(scores, client[calib], len(parties), groups)
            for name, scores in true.items()
        }
        return replace(predictor, known=known, calibrations=calibrations)


def _models(
    federation: Federation, outcome: Outcome, graphs: Sequence[PartyGraph]
) -> tuple[Model, ...]:
    """The models that are needed to predict: of a recipe that only tunes, the last one."""
    recipe, session = outcome.recipe, federation.session
    models, found = list(recipe.models.items()), []
    for kind, part in models[-1:] if recipe.personal == "tuned" else models:
        plan = plan_of(session.config, session.classes, part)
        prior = np.stack([log_prior(graph, plan) for graph in graphs])
        weights = [party.weights[part] for party in federation.parties]
        kept = Plan(**{name: getattr(plan, name) for name in PLANNED})
        found.append(Model(kept, weights, prior, outcome.temperatures.get(kind, 1.0)))
    return tuple(found)


def _generated(client: PartyGraph, names: NDArray[np.uint64]) -> nodes.Generated | None:
    """What was appended to a client's graph (see :func:`fedcover.party.augment.augment`)."""
    if not client.generated:
        return None
    own, (source, target) = client.own, client.edge_index
    down = (source >= own) & (target < own)
    features = sparse.csr_array(client.x[own:])
    weight = client.edge_weight[down]
    return nodes.Generated(features, source[down] - own, names[target[down]], weight)
