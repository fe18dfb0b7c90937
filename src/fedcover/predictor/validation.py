"""Whether the parts of a predictor that was read fit together: a file may come from anywhere."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedcover.config.names import MODELS
from fedcover.conformal import GRAPH_SCORES, RULES, SCORES
from fedcover.models.gnn import weight_shapes
from fedcover.predictor.calibration import Calibration
from fedcover.predictor.inference import Model
from fedcover.predictor.nodes import SALT_BYTES, Generated
from fedcover.predictor.predictor import Predictor


def check_predictor(predictor: Predictor) -> None:
    """Raise a ValueError that says what does not fit."""
    labels, clients, features = predictor.labels, predictor.clients, predictor.features
    parts = 1 if predictor.whole else len(clients)
    _must(len(set(labels)) == len(labels) >= 2, "labels must differ")
    _must(len(set(clients)) == len(clients) >= 1, "clients must differ")
    _must(_whole(features), "features must be a whole number")
    _must(len(predictor.models) >= 1, "there must be a model")
    for model in predictor.models:
        _check_model(model, features, len(labels), parts)
    _check_mixture(predictor)
    _must(_positive(predictor.temperature), "the temperature must be positive")
    _must(len(predictor.generated) == parts, "generated neighbours must be given for each client")
    for one in filter(None, predictor.generated):
        _check_generated(one, features)
    _must(bool(predictor.quantiles), "a quantile rule is missing")
    _must(all(rule in RULES for rule in predictor.quantiles), "a quantile rule is unknown")
    shares = predictor.shares
    _must(shares is None or len(shares) == len(clients), "shares must be given for each client")
    _must(bool(predictor.calibrations), "it has no score")
    for name, calibration in predictor.calibrations.items():
        _must(name in SCORES or name in GRAPH_SCORES, f"the score {name!r} is unknown")
        _check_calibration(calibration, len(labels), len(clients))
    _check_diffusion(predictor)
    raps, schema, scaling = predictor.raps, predictor.schema, predictor.scaling
    _must(raps is None or all(map(math.isfinite, raps)), "RAPS's constants must be numbers")
    _check_nodes(predictor)
    if schema is not None:
        _must(schema.labels == labels, "labels are not those of its schema")
        _must(len(schema.feature_names) == features, "features are not those of its schema")
    _must(scaling is None or len(scaling.mean) == features, "the scaling has another length")
    _must(all(0 <= gap < features for gap in predictor.gaps), "a gap is in no feature")
    _must(predictor.group is None or isinstance(predictor.group, str), "the group has no name")


def _check_model(model: Model, features: int, labels: int, parts: int) -> None:
    plan = model.plan
    _must(plan.model in MODELS, f"the model {plan.model!r} is unknown")
    _must(_whole(plan.hidden) and plan.classes == labels, "the model's sizes do not fit")
    _must(isinstance(plan.unit_features, bool), "whether features have length 1 is not said")
    _must(plan.batch_size is None or _whole(plan.batch_size), "the batch size must be whole")
    _must(len(model.weights) == parts, "weights must be given for each client")
    shapes = weight_shapes(plan.model, features, plan.hidden, labels).values()
    for weights in {id(one): one for one in model.weights}.values():
        for tensor, shape in zip(weights, shapes, strict=True):
            _array(tensor.numpy(), shape, "weights", "f")
    _array(model.prior, (parts, labels), "the prior's values")
    _must(_positive(model.temperature), "the temperature must be positive")


def _check_generated(generated: Generated, features: int) -> None:
    x = generated.features
    x.check_format(full_check=True)  # an index elsewhere would be read from anyone's memory
    _must(x.shape[1] == features, "generated rows have another length")
    _must(x.nnz >= 0, "generated rows end before they begin")  # which scipy does not look at
    _array(x.data, x.data.shape, "generated features", np.float32)
    links = generated.target.shape
    _array(generated.target, links, "links' hashes", np.uint64)
    _array(generated.source, links, "links", np.int64, 0, x.shape[0] - 1)
    _must(math.isfinite(generated.weight) and generated.weight >= 0, "a link weighs too little")


def _check_mixture(predictor: Predictor) -> None:
    mixture, models = predictor.mixture, len(predictor.models)
    _must((mixture is not None) == ("mix" in predictor.method.split("+")), "the mixture is missing")
    if mixture is None:
        _must(models == 1, "there are several models and no mixture")
    else:
        _array(mixture, (len(predictor.clients), models), "the mixture's weights", low=0, high=1)
        _must(bool(np.allclose(mixture.sum(axis=1), 1.0)), "the mixture's weights must add up to 1")


def _check_calibration(calibration: Calibration, labels: int, clients: int) -> None:
    scores, groups = calibration.scores, calibration.groups
    _must(scores.ndim == 1 and scores.dtype == np.float32, "scores must be float32")
    rising = not np.isnan(scores).any() and bool((scores[1:] >= scores[:-1]).all())
    _must(rising, "scores must rise")
    _array(calibration.client, scores.shape, "scores' clients", "i", 0, clients - 1)
    if groups is not None:
        wanted = {"client": clients, "class": labels}.get(groups.kind, len(groups.names))
        _must(groups.kind in ("client", "class", "group"), f"{groups.kind!r} is no kind of group")
        _must(len(set(groups.names)) == len(groups.names) == wanted, "the groups do not fit")
        _array(groups.member, scores.shape, "scores' groups", "i", 0, wanted - 1)


def _check_diffusion(predictor: Predictor) -> None:
    graph = {name: GRAPH_SCORES[name] for name in predictor.calibrations if name in GRAPH_SCORES}
    weights = predictor.diffusion
    _must(weights.keys() == graph.keys(), "a graph score's weights are missing")
    for name, one in weights.items():
        whole = all(0.0 <= weight <= 1.0 for weight in one) and sum(one) <= 1.0 + 1e-9
        _must(whole and (graph[name].similar or one.similar == 0.0), f"{name}'s weights do not fit")
    similar = any(one.similar for one in graph.values())
    _must((predictor.known.alike is not None) == similar, "who is similar is not known")


def _check_nodes(predictor: Predictor) -> None:
    known, shape = predictor.known, predictor.known.names.shape
    _must(len(known.salt) == SALT_BYTES, "the salt has another length")
    _must(len(shape) == 1 and shape[0] > 0, "it knows no node")
    _array(known.names, shape, "nodes' hashes", np.uint64)
    _array(known.print, shape, "fingerprints", np.uint64)
    if known.alike is not None:
        _array(known.alike, shape, "similar nodes' hashes", np.uint64)
    regrouped = {one.kind for one in predictor.calibrations.values()} == {"group"}
    _must((known.group is not None) == regrouped, "nodes' groups are missing")
    if known.group is not None:
        _array(known.group, shape, "nodes' groups", np.int64)
    _array(known.client, shape, "nodes' clients", "i", 0, len(predictor.clients) - 1)
    _array(known.role, shape, "roles", "i", -1, 3)
    _array(known.u, shape, "nodes' random numbers", low=0, high=1)


def _array(
    values: NDArray[np.generic],
    shape: tuple[int, ...],
    what: str,
    kind: str | type = "iuf",
    low: float = -math.inf,
    high: float = math.inf,
) -> None:
    """Finite numbers of this shape, type (or kind of type) and range.

    Positions are signed ("i"): -1 and differences are taken of them.
    """
    _must(values.shape == shape, f"{what} have the shape {values.shape}, not {shape}")
    fits = values.dtype.kind in kind if isinstance(kind, str) else values.dtype == kind
    _must(bool(fits), f"{what} have the type {values.dtype}")
    _must(bool(np.isfinite(values.astype(np.float64)).all()), f"{what} must be finite")
    inside = not values.size or (values.min() >= low and values.max() <= high)
    _must(bool(inside), f"{what} are out of range")


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value > 0


def _must(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)
