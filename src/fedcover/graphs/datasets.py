"""Graphs by name or path: :func:`load` is the one way in."""

import difflib
import os
from pathlib import Path

import torch
from torch_geometric.data import Data

from fedcover.errors import DataError, UsageError
from fedcover.graphs.assemble import largest_component as _largest_component
from fedcover.graphs.catalogue import DATASETS, Dataset
from fedcover.graphs.download import cache_dir, fetch_into_cache
from fedcover.graphs.features import check_missing
from fedcover.graphs.npz import read_npz
from fedcover.graphs.planetoid import read_planetoid
from fedcover.graphs.readers import read_folder
from fedcover.graphs.schema import Schema
from fedcover.graphs.sites import read_sites, site_folders

EMBEDDED_CORA = Path(__file__).parent / "embedded" / "cora.npz"


def load(
    name_or_path: str | Path,
    data: str | Path | None = None,
    largest_component: bool | None = None,
    *,
    missing: str = "refuse",
    schema: Schema | None = None,
    group: str | None = None,
) -> Data:
    """Load a graph: a known name, an ``.npz`` file, or a folder with ``nodes`` and ``edges``.

    The result has ``x`` (n, features; float32; ``torch.sparse_csr`` if sparse), ``edge_index``
    (both directions, sorted, no self-loops), ``y``, and ``name``, ``label_names``, ``node_ids``;
    an own graph's ``client`` column comes with ``client_names``, its ``split`` column as roles.
    From tables it also has ``columns``, ``feature_names``, ``numeric``, which marks features that
    are numbers other than 0 and 1, and ``source``, the table of nodes. A node without a label has
    -1 in ``y``.

    Named graphs are looked for in ``data`` (or ``FEDCOVER_DATA``), which is never written to,
    then in the user's cache, and are else downloaded there; Cora is always the embedded copy
    (the same graph as Planetoid's, in another order of nodes). ``largest_component`` keeps only
    that; by default it is done for named graphs, as in the paper, and not for own ones.

    ``missing`` says what happens to features of tables that are empty: ``"refuse"`` or
    ``"impute"``. With the ``schema`` of an earlier graph (:func:`fedcover.graphs.schema_of`), a
    folder is read with the same columns, categories and numbers of labels, which may be missing.
    ``group`` names a column of an own graph's ``nodes`` that becomes ``group`` and ``group_names``
    in place of a feature, for calibration by group.
    """
    check_missing(missing)
    if isinstance(name_or_path, str) and name_or_path.lower() in DATASETS:
        if schema is not None:
            raise UsageError(f"schema is for a folder of tables; {name_or_path} is not read so.")
        if group is not None:
            raise _no_columns(name_or_path, group)
        graph, named = _named(DATASETS[name_or_path.lower()], data), True
    else:
        graph, named = _own(Path(name_or_path), missing, schema, group), False
    keep_largest = named if largest_component is None else largest_component
    return _largest_component(graph) if keep_largest else graph


def fetch(name: str) -> Path | None:
    """Download a named graph's raw files into the cache; None for Cora, which needs none."""
    if name.lower() not in DATASETS:
        raise UsageError(f"{name!r} is not a known graph; {_suggestion(name)}.")
    dataset = DATASETS[name.lower()]
    return None if dataset.name == "cora" else fetch_into_cache(dataset)


def locate(name: str, data: str | Path | None = None) -> Path | None:
    """Where a named graph's raw files are: the embedded file, a folder, or None (not fetched)."""
    dataset = DATASETS[name]
    if name == "cora":
        return EMBEDDED_CORA
    given = data or os.environ.get("FEDCOVER_DATA")
    if given:
        if not Path(given).is_dir():
            source = "data" if data else "FEDCOVER_DATA"
            raise DataError(f"{source} names {given}, which is not a folder.")
        raw = Path(given) / dataset.folder / "raw"
        if raw.is_dir():
            missing = [file for file in dataset.files if not (raw / file).is_file()]
            if missing:
                raise DataError(f"{raw} has no {missing[0]}.")
            return raw
    cached = cache_dir() / dataset.folder / "raw"
    return cached if cached.is_dir() else None


def _named(dataset: Dataset, data: str | Path | None) -> Data:
    raw = locate(dataset.name, data) or fetch_into_cache(dataset)
    if raw.is_file():
        return read_npz(raw)
    if len(dataset.files) > 1:
        return read_planetoid(raw, dataset.name)
    graph = read_npz(raw / dataset.files[0])
    values = graph.x.values() if graph.x.layout == torch.sparse_csr else graph.x
    values.copy_(values > 0)  # as PyG: these files count words, the graphs say whether they occur
    graph.name = dataset.name
    return graph


def _own(path: Path, missing: str, schema: Schema | None, group: str | None) -> Data:
    if path.is_dir():
        if not site_folders(path):
            return read_folder(path, schema, missing, group=group)
        if missing != "refuse":
            raise UsageError(f"missing is {missing!r}; parties' folders take 'refuse' alone.")
    if schema is not None and path.exists():
        raise UsageError(f"schema is for a folder of tables; {path} is not read so.")
    if path.is_dir():
        return read_sites(path, group=group)
    if path.suffix == ".npz" and path.is_file():
        if group is not None:
            raise _no_columns(path, group)
        return read_npz(path)
    if path.exists():
        raise DataError(f"{path} is neither an .npz file nor a folder with nodes and edges.")
    raise DataError(f"{path} is neither a path that exists nor a known name; {_suggestion(path)}.")


def _no_columns(graph: str | Path, group: str) -> UsageError:
    return UsageError(
        f"group is {group!r}, but {graph} has no columns; only a folder with a table of nodes does."
    )


def _suggestion(name: str | Path) -> str:
    close = difflib.get_close_matches(str(name).lower(), DATASETS, n=1)
    guess = f"did you mean {close[0]!r}? The" if close else "the"
    return f"{guess} known names are {', '.join(DATASETS)}"
