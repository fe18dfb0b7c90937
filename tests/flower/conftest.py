"""Sites for tests over real processes, and the processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedcover.flower.local import LocalFederation
from fedcover.graphs.sites import site_folders


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory, toy_sites: Callable[..., Path]) -> Path:
    return toy_sites(tmp_path_factory.mktemp("federation") / "sites", ("ada", "bob", "cleo"))


@pytest.fixture
def superlink(tmp_path: Path) -> Iterator[LocalFederation]:
    """A SuperLink that nobody is registered at."""
    with LocalFederation(tmp_path / "processes", []) as up:
        up.start_superlink()
        yield up


@contextmanager
def running(folder: Path, sites: Path, untouched: Sequence[str] = ()) -> Iterator[LocalFederation]:
    """A SuperLink, and a process for every site in the folder; all are registered, and all but
    the ``untouched`` ones started."""
    with LocalFederation(folder / "processes", site_folders(sites)) as up:
        up.start_superlink()
        for site in up.sites:
            up.register(site)
            if site.name not in untouched:
                up.start_site(site)
        yield up


def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError(f"{what} after {seconds:.0f} s")
