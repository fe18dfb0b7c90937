"""Sites for tests over real processes, and the processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedcover.flower.local import LocalFederation
from fedcover.graphs.sites import site_folders


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory, toy_sites: Callable[..., Path]) -> Path:
    return toy_sites(tmp_path_factory.mktemp("federation") / "sites", ("ada", "bob", "cleo"))


@pytest.fixture(scope="module")
def federation(sites: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    """A SuperLink and three registered sites, all running."""
    with LocalFederation(tmp_path_factory.mktemp("processes"), site_folders(sites)) as up:
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
