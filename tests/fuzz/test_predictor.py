"""Saved predictors with other content, some of it under the right checksums: refused, or usable."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load as unpack
from safetensors.numpy import save as pack

import fedcover
from fedcover.predictor.saving import ARRAYS, JSON, checksum

from .damage import damaged, one_of, other_array, other_values, tried

ALPHA = 0.3


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Ninety people of two clients and two zones, with gaps, words and missing labels."""
    folder, rng, n = tmp_path_factory.mktemp("people"), np.random.default_rng(0), 90
    label = rng.integers(0, 2, n)
    age = 3 * label + rng.normal(size=n)
    nodes = pl.DataFrame(
        {
            "id": [f"p{k}" for k in range(n)],
            "label": [None if k % 20 == 3 else "ab"[label[k]] for k in range(n)],
            "client": rng.choice(["x", "y"], n),
            "zone": rng.choice(["p", "q"], n),
            "age": [None if k % 17 == 4 else age[k] for k in range(n)],
            "ward": rng.choice(["s", "t"], n),
        }
    )
    nodes.write_csv(folder / "nodes.csv")
    ends = rng.integers(0, n, (2, 200))
    pl.DataFrame(
        {
            name: nodes["id"].gather(end)
            for name, end in zip(("source", "target"), ends, strict=True)
        }
    ).write_csv(folder / "edges.csv")
    return fedcover.load(folder, missing="impute", group="zone")


@pytest.fixture(scope="module")
def saved(graph: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Predictors with and without groups, a mixture and generated neighbours."""
    found: list[Path] = []
    for calibrate in ("pooled", "group"):
        config = fedcover.Config(
            partition="given",
            methods=("gen", "fed+prox+prior+mix"),
            scores=("lac", "raps", "slac"),
            alphas=(ALPHA,),
            seeds=1,
            rounds=2,
            resplits=2,
            calibrate=calibrate,
            gen={"prototypes": (5,), "shares": (0.2,), "link_rounds": 2, "vae": {"epochs": 2}},
            personal={"local_rounds": 2, "tune_rounds": 2},
        )
        run = fedcover.run(graph, config).save(tmp_path_factory.mktemp("runs") / calibrate)
        found += sorted((run / "model").iterdir())
    return found


def signed(content: dict[str, Any], arrays: bytes) -> tuple[bytes, bytes]:
    """Both files with the checksums that go with them."""
    rest = {key: value for key, value in content.items() if key != "sha256"}
    sums = {ARRAYS: hashlib.sha256(arrays).hexdigest(), JSON: checksum(rest)}
    return json.dumps(rest | {"sha256": sums}).encode(), arrays


def packed(arrays: dict[str, np.ndarray]) -> bytes:
    return pack({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def other_bytes(text: bytes, raw: bytes, rng: np.random.Generator) -> tuple[bytes, bytes]:
    if rng.random() < 0.1:  # checksums are of what is said, however it is laid out
        content = json.loads(text)
        keys = rng.permutation(list(content)).tolist()
        return json.dumps({key: content[key] for key in keys}, indent=3).encode(), raw
    return (damaged(text, rng), raw) if rng.random() < 0.5 else (text, damaged(raw, rng))


def other_content(text: bytes, raw: bytes, rng: np.random.Generator) -> tuple[bytes, bytes]:
    content = json.loads(text)
    del content["sha256"]
    return signed(other_values(content, rng), raw)


def other_numbers(text: bytes, raw: bytes, rng: np.random.Generator) -> tuple[bytes, bytes]:
    arrays = unpack(raw)
    name = one_of(sorted(arrays), rng)
    other = other_array(arrays[name], rng)
    try:
        return signed(json.loads(text), packed(arrays | {name: other}))
    except SafetensorError:  # a type that safetensors does not have
        return signed(json.loads(text), packed({k: v for k, v in arrays.items() if k != name}))


def other_packing(text: bytes, raw: bytes, rng: np.random.Generator) -> tuple[bytes, bytes]:
    return signed(json.loads(text), damaged(raw, rng))


@pytest.mark.parametrize(
    ("change", "count"),
    [(other_bytes, 200), (other_content, 400), (other_numbers, 400), (other_packing, 200)],
)
def test_a_damaged_predictor_is_refused_or_can_be_used(
    change: Callable[..., tuple[bytes, bytes]],
    count: int,
    graph: Any,
    saved: list[Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    files = [((one / JSON).read_bytes(), (one / ARRAYS).read_bytes()) for one in saved]

    def read(rng: np.random.Generator) -> object:
        text, raw = change(*one_of(files, rng), rng)
        (tmp_path / JSON).write_bytes(text)
        (tmp_path / ARRAYS).write_bytes(raw)
        predictor = fedcover.load_predictor(tmp_path)
        return [predictor.predict(graph, ALPHA, score=score) for score in predictor.calibrations]

    tried(change.__name__, read, count, capfd)
