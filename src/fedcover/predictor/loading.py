"""Reads a predictor. A file may come from anywhere: whether its parts fit together is checked."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load as unpack
from scipy import sparse

from fedcover.config.names import MODELS
from fedcover.conformal import GRAPH_SCORES, RULES, SCORES, Diffusion, RapsConstants, Terms
from fedcover.errors import DataError, UsageError
from fedcover.files import check_regular
from fedcover.graphs.scaling import Scaling
from fedcover.graphs.schema import parse_schema
from fedcover.models.gnn import WEIGHTS, Weights, weight_shapes
from fedcover.predictor import saving
from fedcover.predictor.calibration import Calibration, Groups
from fedcover.predictor.inference import Model
from fedcover.predictor.nodes import SALT_BYTES, Generated, RunNodes
from fedcover.predictor.predictor import Predictor
from fedcover.predictor.saving import Arrays
from fedcover.training.plan import Plan


def load_predictor(path: str | Path, method: str | None = None) -> Predictor:
    """Read the predictor of a run folder (of one of its methods), or of a folder of its own."""
    folder = _folder(Path(path), method)
    file = folder / saving.JSON
    try:
        content: Any = json.loads(_bytes(file))
        version, sums = content["format"], dict(content["sha256"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{file} is damaged, or is no predictor of fedcover.") from error
    if isinstance(version, int) and version > saving.FORMAT:
        raise DataError(
            f"{file} was written by a newer fedcover (format {version}); this one reads up to "
            f"{saving.FORMAT}."
        )
    if isinstance(version, int) and version < saving.FORMAT:
        raise DataError(
            f"{file} was written by an earlier fedcover (format {version}), whose files this one "
            "does not read; make it anew with fedcover run."
        )
    raw = _bytes(folder / saving.ARRAYS)
    intact = sums.get(saving.JSON) == saving.checksum(content)
    if intact and sums.get(saving.ARRAYS) != saving.sha256(raw):
        raise DataError(f"{folder / saving.ARRAYS} is damaged: it is not what was written.")
    try:
        _must(version == saving.FORMAT, f"its format is {version!r}")
        _must(intact, "it is not what was written")
        predictor = _predictor(content, unpack(raw))
    except Exception as error:  # whatever a damaged file leads to
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error).rstrip(".")
        raise DataError(f"{file} is damaged: {reason}.") from error
    if method is not None and method != predictor.method:
        raise UsageError(f"{folder} has a predictor for {predictor.method!r}, not for {method!r}.")
    return predictor


def _bytes(file: Path) -> bytes:
    check_regular(file)
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror or error}.") from error


def _folder(path: Path, method: str | None) -> Path:
    if (path / saving.JSON).exists():
        return path
    if not path.exists():
        raise DataError(f"{path} does not exist; give a run folder, as fedcover run writes it.")
    choices = {folder.name: folder for folder in sorted((path / saving.FOLDER).glob("*/"))}
    if not choices:
        raise DataError(
            f"{path} holds no predictor; a run folder has one in {saving.FOLDER}/METHOD."
        )
    method = min(choices, key=_rank) if method is None else method
    if method not in choices:
        raise UsageError(f"{path} has no predictor for {method!r}; it has {', '.join(choices)}.")
    return choices[method]


def _rank(method: str) -> tuple[int, bool, str]:
    """A model that mixes comes first, one for everybody next, what nobody can have last."""
    base, *parts = method.split("+")
    return {"loc": 1, "central": 2}.get(base, 0), "mix" not in parts, method


def _predictor(content: Mapping[str, Any], arrays: Arrays) -> Predictor:
    """Raises a ValueError that says what does not fit."""
    words = {name: content[name] for name in saving.WORDS}
    labels, clients = (tuple(map(str, words[name])) for name in ("labels", "clients"))
    features, parts = words["features"], 1 if words["whole"] else len(clients)
    _must(len(set(labels)) == len(labels) >= 2, "labels must differ")
    _must(len(set(clients)) == len(clients) >= 1, "clients must differ")
    _must(_whole(features), "features must be a whole number")
    _must(_positive(words["temperature"]), "the temperature must be positive")
    _must(_positive(words["max_share"]), "the largest share must be positive")
    known = {n.removeprefix("known."): a for n, a in arrays.items() if n.startswith("known.")}
    schema = content["schema"]
    if schema is not None:
        schema = parse_schema(schema, "its schema")
        fits = schema.fingerprint == content["fingerprint"]
        _must(fits, "its schema does not have the fingerprint that it should have")
        _must(schema.labels == labels, "labels are not those of its schema")
        _must(len(schema.feature_names) == features, "features are not those of its schema")
    columns = content["columns"]
    # Columns beside the graph's own are those of neighbours that stand for other clients' nodes.
    more = _whole(columns) and columns > features and any(content["generated"])
    _must(more or columns == features, "its models read other columns than its features")
    predictor = Predictor(
        **words | {"labels": labels, "clients": clients},
        raps=RapsConstants(**content["raps"]) if content["raps"] else None,
        models=tuple(
            _model(arrays, k, one, columns, len(labels), parts)
            for k, one in enumerate(content["models"])
        ),
        mixture=arrays.get("mixture"),
        generated=tuple(
            _generated(arrays, c, columns) if there else None
            for c, there in enumerate(content["generated"])
        ),
        diffusion={name: Diffusion(*one) for name, one in content["diffusion"].items()},
        quantiles=tuple(map(str, content["quantiles"])),
        terms=_terms(content["terms"], parts),
        calibrations={
            name: _calibration(arrays, name, one, len(labels), len(clients), parts)
            for name, one in content["scores"].items()
        },
        known=RunNodes(bytes.fromhex(content["salt"]), **known),
        schema=schema,
        scaling=Scaling.from_dict(content["scaling"]) if content["scaling"] else None,
        gaps=tuple(map(int, content["gaps"])),
        group=content["group"],
        match=content["match"],
        card=content["card"],
    )
    raps, scaling = predictor.raps, predictor.scaling
    rules = predictor.quantiles
    _must(len(predictor.models) >= 1, "there must be a model")
    _must(len(predictor.generated) == parts, "generated neighbours must be given for each client")
    _must(bool(rules), "a quantile rule is missing")
    _must(all(rule in RULES for rule in rules), "a quantile rule is unknown")
    _must(bool(predictor.calibrations), "it has no score")
    _must(raps is None or all(map(math.isfinite, raps)), "RAPS's constants must be numbers")
    _check_mixture(predictor)
    _check_diffusion(predictor)
    _check_nodes(predictor)
    _must(scaling is None or len(scaling.mean) == features, "the scaling has another length")
    _must(all(0 <= gap < features for gap in predictor.gaps), "a gap is in no feature")
    _must(predictor.group is None or isinstance(predictor.group, str), "the group has no name")
    _must(predictor.match is None or isinstance(predictor.match, str), "the keys have no name")
    return predictor


def _model(
    arrays: Arrays, k: int, content: Mapping[str, Any], features: int, labels: int, parts: int
) -> Model:
    plan, prior = Plan(**content["plan"]), arrays[f"prior.{k}"]
    _must(plan.model in MODELS, f"the model {plan.model!r} is unknown")
    _must(_whole(plan.hidden) and plan.classes == labels, "the model's sizes do not fit")
    _must(isinstance(plan.unit_features, bool), "whether features have length 1 is not said")
    _must(plan.batch_size is None or _whole(plan.batch_size), "the batch size must be whole")
    shapes = weight_shapes(plan.model, features, plan.hidden, labels).values()
    weights = []
    for client in range(1 if content["shared"] else parts):
        tensors = [arrays[f"weights.{k}.{client}.{name}"] for name in WEIGHTS]
        for tensor, shape in zip(tensors, shapes, strict=True):
            _array(tensor, shape, "weights", "f")
        weights.append(Weights(*(torch.from_numpy(np.array(tensor)) for tensor in tensors)))
    _array(prior, (parts, labels), "the prior's values")
    temperature = float(content["temperature"])
    _must(_positive(temperature), "the temperature must be positive")
    return Model(plan, weights * parts if content["shared"] else weights, prior, temperature)


def _generated(arrays: Arrays, client: int, features: int) -> Generated:
    source, target, weight, *csr = (arrays[f"generated.{client}.{k}"] for k in range(6))
    x = sparse.csr_array(tuple(csr), shape=(len(csr[2]) - 1, features))
    x.check_format(full_check=True)  # an index elsewhere would be read from anyone's memory
    _must(x.nnz >= 0, "generated rows end before they begin")  # which scipy does not look at
    _array(x.data, x.data.shape, "generated features", np.float32)
    _array(target, target.shape, "links' hashes", np.uint64)
    _array(source, target.shape, "links", np.int64, 0, x.shape[0] - 1)
    _array(weight, target.shape, "links' weights", np.float64)
    _must(bool((weight >= 0).all()), "a link weighs too little")
    return Generated(x, source, target, weight)


def _calibration(
    arrays: Arrays, name: str, content: Mapping[str, Any], labels: int, clients: int, parts: int
) -> Calibration:
    _must(name in SCORES or name in GRAPH_SCORES, f"the score {name!r} is unknown")
    scores, client, groups = arrays[f"scores.{name}"], arrays[f"scores.{name}.client"], None
    _must(scores.ndim == 1 and scores.dtype == np.float32, "scores must be float32")
    rising = bool((scores[1:] >= scores[:-1]).all()) and not np.isnan(scores).any()
    _must(rising, "scores must rise")
    _array(client, scores.shape, "scores' clients", "i", 0, parts - 1)
    if content["groups"] is not None:
        names, kind = tuple(map(str, content["groups"])), str(content["kind"])
        groups = Groups(kind, names, arrays[f"scores.{name}.member"])
        wanted = {"client": clients, "class": labels, "group": len(names)}
        _must(kind in wanted, f"{kind!r} is no kind of group")
        _must(len(set(names)) == len(names) == wanted[kind], "the groups do not fit")
        _array(groups.member, scores.shape, "scores' groups", "i", 0, len(names) - 1)
    return Calibration(scores, client, parts, groups)


def _terms(content: Mapping[str, Any], clients: int) -> Terms:
    shares, confidence = content["shares"], content["confidence"]
    if shares is not None:
        shares = tuple(map(float, shares))
        _must(len(shares) == clients, "shares must be given for each client")
        _must(all(math.isfinite(s) and s >= 0 for s in shares) and any(shares), "shares are wrong")
    return Terms(shares, confidence if confidence is None else float(confidence))


def _check_mixture(predictor: Predictor) -> None:
    mixture, models = predictor.mixture, len(predictor.models)
    _must((mixture is not None) == ("mix" in predictor.method.split("+")), "the mixture is missing")
    if mixture is None:
        _must(models == 1, "there are several models and no mixture")
    else:
        _array(mixture, (len(predictor.clients), models), "the mixture's weights", low=0, high=1)
        _must(bool(np.allclose(mixture.sum(axis=1), 1.0)), "the mixture's weights must add up to 1")


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
