"""Sites for tests over real processes, and the processes."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedcover.carriers.network.flower import free_port
from fedcover.carriers.network.flower.keys import nginx
from fedcover.carriers.network.flower.local import LocalFederation
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
def behind_nginx(up: LocalFederation, folder: Path) -> Iterator[str]:
    """nginx with the configuration that fedcover prints; the address that it listens on."""
    command = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if command is None:
        pytest.skip("nginx is not installed: the gate before the SuperLink is not tried")
    folder.mkdir()
    port = free_port()
    places = "".join(f"{kind}_temp_path {folder}/{kind}; " for kind in NGINX_PLACES)
    (folder / "nginx.conf").write_text(
        f"pid {folder}/pid; error_log {folder}/error.log; events {{}}\n"
        f"http {{ access_log {folder}/access.log; {places}\n"
        f"{nginx(up.keys, port, up.address)}}}\n"
    )
    up.start("nginx", command, "-c", str(folder / "nginx.conf"), "-g", "daemon off;")
    yield f"{up.host}:{port}"


NGINX_PLACES = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


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
