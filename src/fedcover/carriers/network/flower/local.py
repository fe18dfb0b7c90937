"""A federation on this machine: a SuperLink and SuperNodes as processes of their own, with TLS.

``make federation`` and the tests use it. Each process writes its log into the folder, and all of
them are stopped at the end, whatever happens.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from fedcover.carriers.network.flower import keys
from fedcover.errors import DataError

APP = Path(__file__).parent / "app"
CONNECTION = "here"
HOST = "127.0.0.1"
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
"""What keeps Flower from telling its makers about this machine."""


class LocalFederation:
    """Processes, certificates and keys in one folder; use it in a ``with`` block."""

    def __init__(self, folder: Path, sites: Sequence[Path], host: str = HOST) -> None:
        self.folder, self.sites = folder.resolve(), [site.resolve() for site in sites]
        self.host, self.port = host, free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.keys = self.folder / "keys"

    def __enter__(self) -> LocalFederation:
        keys.make_certificates(self.keys, [self.host])
        for site in self.sites:
            keys.make_site_key(self.key_of(site))
        self._write_connection()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in list(self.processes):
            self.stop(name)

    def key_of(self, site: Path) -> Path:
        """A site's private key."""
        return self.keys / site.name

    @property
    def address(self) -> str:
        """Where the sites find the coordinator."""
        return f"{self.host}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What Flower's processes see: a home of their own, and no telemetry."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        return {
            **os.environ,
            "PATH": path,
            "FLWR_HOME": str(self.folder / "flwr"),
            **QUIET,
        }

    def start_superlink(self) -> None:
        """The coordinator's side: one port, TLS, and only registered sites."""
        self.start(
            "superlink",
            "flower-superlink",
            "--host",
            self.host,
            "--port",
            str(self.port),
            "--ssl-ca-certfile",
            str(self.keys / keys.CA),
            "--ssl-certfile",
            str(self.keys / keys.CERTIFICATE),
            "--ssl-keyfile",
            str(self.keys / keys.KEY),
            "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
            "--database",
            str(self.folder / "superlink.db"),
        )
        self._wait_until_open("superlink", self.port)

    def register(self, site: Path) -> None:
        """Let a site in, by its public key."""
        key = f"{self.key_of(site)}.pub"
        self.flwr("supernode", "register", key, CONNECTION, "--name", site.name)

    def start_site(
        self, site: Path, within: Sequence[str] = (), address: str | None = None
    ) -> None:
        """A party's process; ``within`` is a command that starts others (``ip netns exec …``),
        ``address`` where the site looks for the coordinator, if not directly."""
        self.start(
            site.name,
            *within,
            sys.executable,
            "-m",
            "fedcover",
            "site",
            "run",
            str(site),
            "--superlink",
            address or self.address,
            "--root-certificates",
            str(self.keys / keys.CA),
            "--key",
            str(self.key_of(site)),
        )

    def start_job(self, settings: Mapping[str, Any]) -> None:
        """Hand the job to the SuperLink, as any Flower app."""
        words = [f"{key}={_spelt(value)}" for key, value in settings.items()]
        self.flwr("run", str(APP), CONNECTION, "--run-config", " ".join(words))

    def start(self, name: str, *command: str) -> None:
        """A process of its own group, with its output in ``NAME.log``."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=self.environment,
                start_new_session=True,
            )

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End a process and what it started."""
        process = self.processes.pop(name)
        for attempt in (how, signal.SIGKILL):
            try:
                os.killpg(process.pid, attempt)
            except ProcessLookupError:
                break
            try:
                process.wait(timeout=5)
                break
            except subprocess.TimeoutExpired:
                continue

    def flwr(self, *arguments: str) -> str:
        """Flower's own command line."""
        done = subprocess.run(
            ["flwr", *arguments], capture_output=True, text=True, env=self.environment, check=False
        )
        if done.returncode:
            raise DataError(f"flwr {arguments[0]} failed: {done.stderr or done.stdout}")
        return done.stdout

    def _write_connection(self) -> None:
        home = self.folder / "flwr"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "{self.address}"\n'
            f'root-certificates = "{self.keys / keys.CA}"\n',
            encoding="utf-8",
        )

    def _wait_until_open(self, name: str, port: int, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.processes[name].poll() is not None:
                break
            with socket.socket() as probe:
                if probe.connect_ex((self.host, port)) == 0:
                    return
            time.sleep(0.1)
        log = (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        raise DataError(f"{name} did not start:\n{log[-2000:]}")


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _spelt(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    return str(value) if isinstance(value, int | float) else f'"{value}"'
