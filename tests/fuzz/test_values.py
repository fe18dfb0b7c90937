"""Well-formed files with other values: what bytes by chance would hardly ever be."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedcover.config import Config, configured, to_toml
from fedcover.graphs.schema import parse_schema

from .damage import (
    damaged,
    one_of,
    other_arrays,
    other_cells,
    other_json,
    other_table,
    tried,
)
from .files import (
    DENSE,
    EDGES,
    KEYED,
    LINKS,
    NODES,
    SCHEMA,
    SPARSE,
    Reader,
    folder_reader,
    npz_reader,
)

COUNTS = {
    "nodes.csv": 400,
    "nodes.csv, read with a schema": 200,
    "edges.csv": 200,
    "nodes.parquet": 400,
    "nodes.parquet, read with a schema": 200,
    "edges.parquet": 200,
    "nodes.csv, with keys": 200,
    "nodes.parquet, with keys": 200,
    "links.csv": 200,
    "links.parquet": 150,
    "graph.npz, dense": 400,
    "graph.npz, sparse": 400,
    "schema.json": 400,
    "config.toml, bytes": 200,
    "config.toml": 400,
}
LITERALS = (
    *("true", "0", "-1", "1e400", "nan", "inf", '"x"', '""', "[]", "[0]", "[1.5]", '["a"]'),
    *("[[]]", "{}", "{a = 1}", "1979-05-27", "9" * 25, r'"\u0000"', "[true]", "[nan]"),
    *('["fed", "fed"]', '"paper"', "[0.1, 0.1]"),
)


def toml_reader(file: Path, whole: bool) -> Reader:
    """Reads settings of which one has another value, or any bytes are others."""
    text = to_toml(Config())
    lines = text.splitlines()
    settings = [k for k, line in enumerate(lines) if " = " in line]

    def read(rng) -> object:
        if not whole:
            file.write_bytes(damaged(text.encode(), rng))
            return configured(file)
        place, other = one_of(settings, rng), list(lines)
        other[place] = f"{lines[place].split(' = ')[0]} = {one_of(LITERALS, rng)}"
        file.write_text("\n".join(other), encoding="utf-8")
        return configured(file)

    return read


@pytest.fixture
def readers(tmp_path: Path) -> dict[str, Reader]:
    spelt = SCHEMA.to_json().encode()
    return {
        "nodes.csv": folder_reader(tmp_path / "a", "nodes.csv", NODES, other_cells),
        "nodes.csv, read with a schema": folder_reader(
            tmp_path / "b", "nodes.csv", NODES, other_cells, SCHEMA
        ),
        "edges.csv": folder_reader(tmp_path / "c", "edges.csv", EDGES, other_cells),
        "nodes.parquet": folder_reader(tmp_path / "d", "nodes.parquet", NODES, other_table),
        "nodes.parquet, read with a schema": folder_reader(
            tmp_path / "e", "nodes.parquet", NODES, other_table, SCHEMA
        ),
        "edges.parquet": folder_reader(tmp_path / "f", "edges.parquet", EDGES, other_table),
        "nodes.csv, with keys": folder_reader(
            tmp_path / "k", "nodes.csv", KEYED, other_cells, match="pid"
        ),
        "nodes.parquet, with keys": folder_reader(
            tmp_path / "l", "nodes.parquet", KEYED, other_table, match="pid"
        ),
        "links.csv": folder_reader(tmp_path / "m", "links.csv", LINKS, other_cells),
        "links.parquet": folder_reader(tmp_path / "n", "links.parquet", LINKS, other_table),
        "graph.npz, dense": npz_reader(tmp_path / "g", DENSE, other_arrays),
        "graph.npz, sparse": npz_reader(tmp_path / "h", SPARSE, other_arrays),
        "schema.json": lambda rng: parse_schema(other_json(spelt, rng).decode(), "schema.json"),
        "config.toml, bytes": toml_reader(tmp_path / "i.toml", whole=False),
        "config.toml": toml_reader(tmp_path / "j.toml", whole=True),
    }


@pytest.mark.parametrize("kind", COUNTS)
def test_a_file_with_other_values_is_read_or_refused(
    kind: str, readers: dict[str, Reader], capfd: pytest.CaptureFixture[str]
) -> None:
    tried(kind, readers[kind], COUNTS[kind], capfd)
