"""Sites for tests over real processes, and the processes."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedcover.flower.local import LocalFederation
from fedcover.graphs.sites import SCHEMA_FILE, common_schema, site_folders

_toy = importlib.util.spec_from_file_location(
    "parties_toy", Path(__file__).parents[1] / "parties" / "conftest.py"
)
assert _toy is not None
assert _toy.loader is not None
toy = importlib.util.module_from_spec(_toy)
_toy.loader.exec_module(toy)


def write_toy(folder: Path, names: tuple[str, ...]) -> Path:
    for seed, name in enumerate(names):
        toy.write_site(folder / name, 28 + 6 * (seed % 4), seed)
    (folder / SCHEMA_FILE).write_text(common_schema(site_folders(folder)).to_json())
    return folder


@pytest.fixture(scope="module")
def toy_sites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy(tmp_path_factory.mktemp("federation") / "sites", ("ada", "bob", "cleo"))


@pytest.fixture(scope="module")
def federation(
    toy_sites: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalFederation]:
    """A SuperLink and three registered sites, all running."""
    with LocalFederation(tmp_path_factory.mktemp("processes"), site_folders(toy_sites)) as up:
        up.start_superlink()
        for site in up.sites:
            up.register(site)
            up.start_site(site)
        yield up


def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError(f"{what} after {seconds:.0f} s")
