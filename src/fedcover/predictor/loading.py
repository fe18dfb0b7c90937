"""Reads a predictor; a file may come from anywhere (see :mod:`fedcover.predictor.validation`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load as unpack
from scipy import sparse

from fedcover.conformal import Diffusion, RapsConstants
from fedcover.errors import DataError, UsageError
from fedcover.files import check_regular
from fedcover.graphs.scaling import Scaling
from fedcover.graphs.schema import Schema, parse_schema
from fedcover.models.gnn import WEIGHTS, Weights
from fedcover.predictor.calibration import Calibration, Groups
from fedcover.predictor.inference import Model
from fedcover.predictor.nodes import Generated, RunNodes
from fedcover.predictor.predictor import Predictor
from fedcover.predictor.saving import (
    ARRAYS,
    FOLDER,
    FORMAT,
    JSON,
    WORDS,
    Arrays,
    checksum,
    sha256,
)
from fedcover.predictor.validation import check_predictor
from fedcover.training.plan import Plan


def load_predictor(path: str | Path, method: str | None = None) -> Predictor:
    """Read the predictor of a run folder (of one of its methods), or of a folder of its own."""
    folder = _folder(Path(path), method)
    file = folder / JSON
    try:
        content: Any = json.loads(_bytes(file))
        version, sums = content["format"], dict(content["sha256"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{file} is damaged, or is no predictor of fedcover.") from error
    if isinstance(version, int) and version > FORMAT:
        raise DataError(
            f"{file} was written by a newer fedcover (format {version}); this one reads up to "
            f"{FORMAT}."
        )
    raw = _bytes(folder / ARRAYS)
    if sums.get(JSON) == checksum(content) and sums.get(ARRAYS) != sha256(raw):
        raise DataError(f"{folder / ARRAYS} is damaged: it is not what was written.")
    try:
        if type(version) is not int or version < 1:
            raise ValueError(f"its format is {version!r}")
        if sums.get(JSON) != checksum(content):
            raise ValueError("it is not what was written")
        predictor = _predictor(content, unpack(raw))
        check_predictor(predictor)
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
    if (path / JSON).exists():
        return path
    if not path.exists():
        raise DataError(f"{path} does not exist; give a run folder, as fedcover run writes it.")
    choices = {folder.name: folder for folder in sorted((path / FOLDER).glob("*/"))}
    if not choices:
        raise DataError(f"{path} holds no predictor; a run folder has one in {FOLDER}/METHOD.")
    if method is None:
        method = _preferred(list(choices))[0]
    if method not in choices:
        raise UsageError(f"{path} has no predictor for {method!r}; it has {', '.join(choices)}.")
    return choices[method]


def _preferred(methods: list[str]) -> list[str]:
    """A model that mixes comes first, one for everybody next, what nobody can have last."""
    last = {"loc": 1, "central": 2}

    def order(name: str) -> tuple[int, bool, str]:
        base, *parts = name.split("+")
        return last.get(base, 0), "mix" not in parts, name

    return sorted(methods, key=order)


def _predictor(content: Mapping[str, Any], arrays: Arrays) -> Predictor:
    words = {name: content[name] for name in WORDS}
    for name in ("labels", "clients"):
        words[name] = tuple(map(str, words[name]))
    count = 1 if words["whole"] else len(words["clients"])
    raps = content["raps"]
    return Predictor(
        **words,
        empty_sets=bool(content["empty_sets"]),
        raps=RapsConstants(**raps) if raps else None,
        models=tuple(
            Model(
                Plan(**one["plan"]),
                _weights(arrays, k, count, bool(one["shared"])),
                arrays[f"prior.{k}"],
                float(one["temperature"]),
            )
            for k, one in enumerate(content["models"])
        ),
        mixture=arrays.get("mixture"),
        generated=tuple(
            None if weight is None else _generated(arrays, c, words["features"], float(weight))
            for c, weight in enumerate(content["generated"])
        ),
        diffusion={name: Diffusion(*one) for name, one in content["diffusion"].items()},
        quantiles=tuple(map(str, content["quantiles"])),
        shares=tuple(map(float, content["shares"])) if content["shares"] else None,
        calibrations={
            name: _calibration(arrays, name, one, len(words["clients"]))
            for name, one in content["scores"].items()
        },
        known=RunNodes(
            bytes.fromhex(content["salt"]),
            **{
                name.removeprefix("known."): array
                for name, array in arrays.items()
                if name.startswith("known.")
            },
        ),
        schema=_schema(content),
        scaling=Scaling.from_dict(content["scaling"]) if content["scaling"] else None,
        gaps=tuple(map(int, content["gaps"])),
        group=content["group"],
        card=content["card"],
    )


def _schema(content: Mapping[str, Any]) -> Schema | None:
    if content["schema"] is None:
        return None
    schema = parse_schema(content["schema"], "its schema")
    if schema.fingerprint != content["fingerprint"]:
        raise ValueError("its schema does not have the fingerprint that it should have")
    return schema


def _calibration(
    arrays: Arrays, name: str, content: Mapping[str, Any], clients: int
) -> Calibration:
    groups = None
    if content["groups"] is not None:
        names = tuple(map(str, content["groups"]))
        groups = Groups(str(content["kind"]), names, arrays[f"scores.{name}.member"])
    scores, client = arrays[f"scores.{name}"], arrays[f"scores.{name}.client"]
    return Calibration(scores, client, clients, groups)


def _generated(arrays: Arrays, client: int, features: int, weight: float) -> Generated:
    source, target, *csr = (arrays[f"generated.{client}.{k}"] for k in range(5))
    x = sparse.csr_array(tuple(csr), shape=(len(csr[2]) - 1, features))
    return Generated(x, source, target, weight)


def _weights(arrays: Arrays, model: int, clients: int, shared: bool) -> list[Weights]:
    def one(client: int) -> Weights:
        tensors = (arrays[f"weights.{model}.{client}.{name}"] for name in WEIGHTS)
        return Weights(*(torch.from_numpy(np.array(tensor)) for tensor in tensors))

    return [one(0)] * clients if shared else [one(client) for client in range(clients)]
