"""A federation on this machine: a SuperLink and SuperNodes as processes of their own, with TLS.

``make federation`` and the tests use it. Each process writes its log into the folder, and all of
them are stopped at the end, whatever happens.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from fedcover.carriers.network.coordinate import FAILURE, the_only_job
from fedcover.carriers.network.flower import APP, HOST, QUIET, free_port, keys, wait_for
from fedcover.carriers.network.job import job_folder, job_from
from fedcover.carriers.network.journal import FILE
from fedcover.config import Config, recipe_of
from fedcover.errors import DataError, UsageError
from fedcover.graphs import load
from fedcover.graphs.check import check_graph
from fedcover.graphs.partition import partition
from fedcover.graphs.sites import SCHEMA_FILE, copy_sites, site_folders, write_sites
from fedcover.ledger import split_part
from fedcover.party.data import cut_parties, gathered, known_edges
from fedcover.run_folder import check_target

CLIENTS = 3  # unless told
CONNECTION = "here"
JOIN = 120.0  # seconds until every site must be there
LIMIT = 3600.0  # seconds until the whole job must be done


class LocalFederation:
    """Processes, certificates and keys in one folder; use it in a ``with`` block."""

    def __init__(self, folder: Path, sites: Sequence[Path], host: str = HOST) -> None:
        self.folder, self.sites = folder.resolve(), [site.resolve() for site in sites]
        self.host, self.port = host, free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.keys = self.folder / "keys"

    def __enter__(self) -> "LocalFederation":
        keys.make_certificates(self.keys, [self.host])
        for site in self.sites:
            keys.make_site_key(self.key_of(site))
        home = self.folder / "flwr"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "{self.address}"\n'
            f'root-certificates = "{self.keys / keys.CA}"\n',
            encoding="utf-8",
        )
        return self

    def __exit__(self, *_: object) -> None:
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
        return {**os.environ, "PATH": path, "FLWR_HOME": str(self.folder / "flwr"), **QUIET}

    def start_superlink(self) -> None:
        """The coordinator's side: one port, TLS, and only registered sites."""
        command = ["flower-superlink", "--host", self.host, "--port", str(self.port)]
        command += ["--enable-supernode-auth", "--disable-runtime-dependency-installation"]
        command += ["--database", str(self.folder / "superlink.db")]
        files = {"ca-certfile": keys.CA, "certfile": keys.CERTIFICATE, "keyfile": keys.KEY}
        command += [f"--ssl-{option}={self.keys / name}" for option, name in files.items()]
        self.start("superlink", *command)
        running = self.processes["superlink"]
        if not wait_for(self.port, self.host, lambda: running.poll() is None):
            log = (self.folder / "superlink.log").read_text(encoding="utf-8", errors="replace")
            raise DataError(f"superlink did not start:\n{log[-2000:]}")

    def register(self, site: Path) -> None:
        """Let a site in, by its public key."""
        key = f"{self.key_of(site)}.pub"
        self.flwr("supernode", "register", key, CONNECTION, "--name", site.name)

    def start_site(
        self,
        site: Path,
        within: Sequence[str] = (),
        address: str | None = None,
        least_far_ends: int | None = None,
        match: str | None = None,
    ) -> None:
        """A party's process; ``within`` is a command that starts others (``ip netns exec …``),
        ``address`` where the site looks for the coordinator, if not directly, ``least_far_ends``
        its floor for sums of +neighbours, if not the usual one, ``match`` its column of keys."""
        command = [*within, sys.executable, "-m", "fedcover", "site", "run", str(site)]
        command += ["--superlink", address or self.address, "--key", str(self.key_of(site))]
        if least_far_ends is not None:
            command += ["--least-far-ends", str(least_far_ends)]
        if match is not None:
            command += ["--match", match]
        self.start(site.name, *command, "--root-certificates", str(self.keys / keys.CA))

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
            with suppress(subprocess.TimeoutExpired, ProcessLookupError):
                os.killpg(process.pid, attempt)
                process.wait(timeout=5)
                break

    def flwr(self, *arguments: str) -> str:
        """Flower's own command line."""
        done = subprocess.run(
            ["flwr", *arguments], capture_output=True, text=True, env=self.environment, check=False
        )
        if done.returncode:
            raise DataError(f"flwr {arguments[0]} failed: {done.stderr or done.stdout}")
        return done.stdout


def _spelt(value: Any) -> str:
    """A setting as TOML has it."""
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    return str(value).lower() if isinstance(value, int | float) else f'"{value}"'


def trial(
    graph: str,
    clients: int | None,
    settings: Mapping[str, Any],
    out: Path,
    *,
    data: str | None = None,
    say: Callable[[str], None] | None = None,
) -> Path:
    """Cut the graph into sites, start everything, run the job, stop everything.

    A folder of parties' folders is not cut: each party is a site, with a copy of its tables.
    ``settings`` are the job's, by the names of options. ``OUT-sites`` holds the sites' folders,
    with their sets and ledgers; ``OUT-processes`` the logs, the certificates and the keys.
    """
    tell = say or (lambda _sentence: None)
    parties = site_folders(Path(graph)) if Path(graph).is_dir() else []
    if parties and clients not in (None, len(parties)):
        raise UsageError(f"clients is {clients}, but {graph} has the folders of {len(parties)}.")
    clients = len(parties) or clients or CLIENTS
    told = {"sites": clients, "least": max(clients - 1, 1), "join": JOIN}
    told |= {name.replace("_", "-"): value for name, value in settings.items()}
    job = job_from(told)  # what is wrong is said before anything is started
    if job.match is not None and not parties:
        raise UsageError(
            f"match is {job.match!r}, but a graph that is cut here keeps no keys: its sites list "
            "their links."
        )
    check_target(out)
    out = out.resolve()
    with the_only_job(out):
        pass  # the folders beside it are of no other trial that is still under way
    sites, processes = (out.with_name(f"{out.name}-{kind}") for kind in ("sites", "processes"))
    _clear(sites, SCHEMA_FILE)
    _clear(processes, "superlink.log")
    known = None
    if parties:
        check_graph(load(graph, data, missing=job.missing, group=job.group, match=job.match))
        copy_sites(Path(graph), sites, group=job.group, match=job.match)
    else:
        known = _cut(check_graph(load(graph, data)), clients, job.config, sites)
    folders = site_folders(sites)
    tell(f"{sites}: {', '.join(folder.name for folder in folders)}")
    if known is not None:
        tell(f"{known} edges between sites, which both their ends list as links")
    before = _stamp(out)
    with LocalFederation(processes, folders) as federation:
        federation.start_superlink()
        tell(f"SuperLink on port {federation.port}, with TLS; only registered sites may connect")
        for folder in folders:
            federation.register(folder)
            # One machine, one owner: the job's own floor is as good as a site's.
            least = job.config.neighbour.least
            federation.start_site(folder, least_far_ends=least, match=job.match)
        tell(f"{len(folders)} SuperNodes started, each with a key of its own")
        federation.start_job({**told, "schema": sites / SCHEMA_FILE, "out": out})
        _follow(federation, out, before, tell)
    tell("all processes are stopped")
    return out


def _cut(graph: Data, clients: int, config: Config, sites: Path) -> int | None:
    """Cut a graph into sites' folders; how many edges between them both ends know, if they are to
    know them."""
    parts = partition(graph, clients)
    linked = any(recipe_of(name).neighbours for name in config.methods)
    plan = Config(clients=clients, methods=("fed",), cut_edges="known" if linked else "unknown")
    cut = cut_parties(graph, parts, plan, seed=0)
    roles = gathered(parts.client, [party.roles for party in cut])
    known = known_edges(graph, parts, plan, seed=0)
    write_sites(sites, graph, parts, roles, known)
    return None if known is None else known.shape[1] // 2


def _clear(place: Path, mark: str) -> None:
    """Delete what an earlier trial left, which the file ``mark`` shows, and nothing else."""
    if place.exists() and any(place.iterdir()) and not (place / mark).exists():
        raise UsageError(f"{place} exists and is not of an earlier trial; choose another --out.")
    shutil.rmtree(place, ignore_errors=True)


def _stamp(out: Path) -> float:
    mark = out / "run.json"
    return mark.stat().st_mtime if mark.exists() else 0.0


def _follow(
    federation: LocalFederation, out: Path, before: float, tell: Callable[[str], None]
) -> None:
    """Say how far the job is, until the run folder stands or the job has failed."""
    beside, end, said = job_folder(out), time.monotonic() + LIMIT, ""
    while time.monotonic() < end:
        if _stamp(out) > before:
            return
        if (beside / FAILURE).exists():
            raise DataError((beside / FAILURE).read_text(encoding="utf-8").strip())
        for name, process in federation.processes.items():
            if process.poll() is not None:
                log = federation.folder / f"{name}.log"
                last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
                raise DataError(f"{name} has stopped; the end of {log}: {' '.join(last)}")
        if (phase := _phase(beside / FILE)) != said:
            tell(phase)
            said = phase
        time.sleep(0.2)
    raise DataError(f"the job was not done after {LIMIT:.0f} s; see {federation.folder}.")


def _phase(ledger: Path) -> str:
    """What the coordinator's ledger speaks of last."""
    with suppress(FileNotFoundError, ValueError, IndexError, KeyError), ledger.open("rb") as file:
        file.seek(max(ledger.stat().st_size - 4096, 0))
        last = file.read().decode(errors="replace").splitlines()[-1]
        return "/".join(split_part(json.loads(last)["part"]))
    return ""
