"""The short version over real processes: a SuperLink and three SuperNodes, with TLS."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from fedcover.carriers.network import journal
from fedcover.carriers.network.coordinate import coordinate
from fedcover.carriers.network.flower import APP, HOST, keys
from fedcover.carriers.network.flower.keys import FLEET
from fedcover.carriers.network.flower.local import LocalFederation, _follow, trial
from fedcover.carriers.network.job import Assignment, assignment_from
from fedcover.carriers.network.member import InProcess, Member
from fedcover.config import Config
from fedcover.errors import DataError
from fedcover.graphs.readers import read_folder
from fedcover.graphs.schema import read_schema
from fedcover.graphs.sites import SCHEMA_FILE, site_folders
from fedcover.graphs.splits import Role
from fedcover.party import calibration

from ..conftest import with_keys  # noqa: TID252
from .conftest import behind_nginx, running, until
from .tap import Tap

SETTINGS = {
    "sites": 3,
    "least": 2,
    "timeout": 60.0,
    "join": 150.0,
    "methods": "gen",
    "scores": "lac,aps",
    "quantiles": "exact,average,tdigest",
    "alphas": "0.1,0.3",
    "rounds": 3,
    "hidden": 8,
    "prototypes": "2,3",
    "shares": "0.2,0.5",
    "link-rounds": 2,
    "screening": 2,
}
LIMIT = 240.0


def settings_for(folder: Path, out: Path, /, **changes: object) -> dict[str, object]:
    return {**SETTINGS, "schema": folder / SCHEMA_FILE, "out": out, **changes}


def test_three_nodes_over_tls_give_what_one_process_gives(
    sites: Path, tmp_path: Path, toy_sites: Callable[..., Path]
) -> None:
    """And whoever reads all that a site sends finds nothing that is the site's own."""
    out, sober = tmp_path / "over-tls", tmp_path / "exact"
    settings = settings_for(sites, out)
    with running(tmp_path, sites, ("ada",)) as federation, Tap(federation) as tap:
        federation.start_site(sites / "ada", address=tap.address)
        federation.start_job(settings)
        until((out / "run.json").exists, LIMIT, "no run folder")
        first = tap.take()
        federation.start_job(settings_for(sites, sober, quantiles="exact"))
        until((sober / "run.json").exists, LIMIT, "no run folder")
        second = tap.take()

    same = toy_sites(tmp_path / "sites", ("ada", "bob", "cleo"))
    job = assignment_from(settings)
    here = Assignment(job.job, job.schema, tmp_path / "here")
    members = [Member(folder) for folder in site_folders(same)]
    coordinate(here, InProcess(members))
    for table in ("results.csv", "groups.csv"):
        found = (out / table).read_bytes().replace(b"over-tls", b"here")
        assert found == (here.out / table).read_bytes()  # q_hat bit for bit
    sets = pl.concat([pl.read_parquet(file) for file in set_files(sites, out)])
    assert sets.equals(pl.concat([pl.read_parquet(file) for file in set_files(same, here.out)]))
    assert not list(out.glob("sets-*"))
    assert pl.read_parquet(out / "sets.parquet").is_empty()  # results stay home
    assert (out / "report.html").stat().st_size > 1000

    assert b"prototypes" in second
    assert len(second) > 20_000
    assert not list(found_of(sites / "ada", second))
    scores = true_scores(members[0])
    assert not any(pair in second for pair in pairs(scores))
    assert any(pair in first for pair in pairs(scores))  # a T-Digest does hold some


def set_files(sites: Path, out: Path) -> list[Path]:
    """The sites' files of the job that wrote this run folder."""
    job = next(iter(journal.read(out / journal.FILE)))["job"]
    return sorted(sites.glob(f"*/results/{job}/sets-*.parquet"))


def found_of(site: Path, heard: bytes) -> Iterator[str]:
    """What of a site's own data stands in these bytes, in any spelling of numbers."""
    graph = read_folder(site, read_schema(site.parent / SCHEMA_FILE))
    if str(site).encode() in heard:
        yield "where its folder lies"
    for node in pl.read_csv(site / "nodes.csv")["id"]:
        if re.search(rb"\b%s\b" % node.encode(), heard):
            yield f"the name of the node {node}"
    for k, row in enumerate(graph.x.numpy()):
        if any(row.astype(kind).tobytes() in heard for kind in (np.float32, np.float64)):
            yield f"the features of node {k}"
    columns = {"labels": graph.y.numpy(), "edges": graph.edge_index.numpy()[0]}
    for what, column in columns.items():
        kinds = (np.int8, np.int16, np.int32, np.int64, np.float32, np.float64)
        if any(column.astype(kind).tobytes() in heard for kind in kinds):
            yield f"its {what}"


def true_scores(member: Member) -> list[NDArray[np.floating]]:
    """The calibration nodes' scores, by kind of score."""
    job = member._under_way
    assert job is not None
    party = job.party(0)
    calib, y = party.data.nodes(Role.CALIB), party.data.y
    own = [calibration.scores(party, "gen", name) for name in ("lac", "aps")]
    return [scores[calib, y[calib]] for scores in own]


def pairs(scores: Sequence[NDArray[np.floating]]) -> Iterator[bytes]:
    """Neighbouring scores, as they stand and in order; a single one of four bytes may be found by
    chance, and is looked for in each message by tests/carriers/network/test_ledger.py."""
    for own in scores:
        for row in (own, np.sort(own)):
            for kind in (np.float32, np.float64):
                for k in range(len(row) - 1):
                    yield row[k : k + 2].astype(kind).tobytes()


@pytest.mark.parametrize("kind", ["key", "certificate", "plain text"])
def test_who_is_not_let_in(
    kind: str, superlink: LocalFederation, tmp_path: Path, toy_sites: Callable[..., Path]
) -> None:
    """A SuperNode that nobody registered, one that trusts another authority, one without TLS."""
    stranger = toy_sites(tmp_path / "strangers", ("eve",)) / "eve"
    keys.make_site_key(tmp_path / "eve.key")
    keys.make_certificates(tmp_path / "other", [HOST])
    options = {
        "key": ["--root-certificates", str(superlink.keys / keys.CA)],
        "certificate": ["--root-certificates", str(tmp_path / "other" / keys.CA)],
        "plain text": ["--insecure"],
    }[kind]
    if kind != "plain text":
        options += ["--key", str(tmp_path / "eve.key")]
    name = f"eve-{kind.replace(' ', '-')}"
    command = [sys.executable, "-m", "fedcover", "site", "run", str(stranger)]
    superlink.start(name, *command, "--superlink", superlink.address, *options)
    log = superlink.folder / f"{name}.log"
    words = {
        "key": "Failed to activate SuperNode",
        "certificate": "CERTIFICATE_VERIFY_FAILED",
        "plain text": "Connection attempt failed",
    }[kind]
    until(lambda: words in log.read_text(errors="replace"), 90, f"{name} was not refused")
    assert "Activated node_id=" not in (superlink.folder / "superlink.log").read_text()
    superlink.stop(name)


def test_the_gate_lets_sites_through_and_no_operator(
    superlink: LocalFederation, tmp_path: Path, toy_sites: Callable[..., Path]
) -> None:
    """Flower asks operators for no key; through the gate there is nothing that they could ask."""
    site = toy_sites(tmp_path / "sites", ("ada", "bob")) / "ada"
    keys.make_site_key(superlink.key_of(site))
    keys.make_site_key(tmp_path / "eve.key")
    superlink.register(site)
    with behind_nginx(superlink, tmp_path / "nginx") as outside:
        config = superlink.folder / "flwr" / "config.toml"
        config.write_text(config.read_text().replace(superlink.address, outside))
        for command in (
            ("supernode", "register", str(tmp_path / "eve.key.pub"), "here"),
            ("run", str(APP), "here"),
            ("list", "here"),
        ):
            with pytest.raises(DataError, match=r"403|[Ff]orbidden|[Pp]ermission"):
                superlink.flwr(*command)
        superlink.start_site(site, address=outside)
        log = superlink.folder / "superlink.log"
        until(lambda: "Activated node_id=" in log.read_text(errors="replace"), 90, "not let in")
        until(lambda: f"POST {FLEET}pull-messages" in access(tmp_path), 30, "it does not ask")


def access(folder: Path) -> str:
    return (folder / "nginx" / "access.log").read_text()


def test_a_setting_that_is_wrong_is_named(sites: Path, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="alphas"):
        assignment_from(settings_for(sites, tmp_path / "x", alphas="1.5"))
    with pytest.raises(Exception, match="schema"):
        assignment_from({"out": "x"})
    with pytest.raises(Exception, match="rounds is 0"):
        assignment_from(settings_for(sites, tmp_path / "x", rounds=0))


def test_every_setting_of_the_app_is_read(sites: Path, tmp_path: Path) -> None:
    import tomllib

    app = tomllib.loads((APP / "pyproject.toml").read_text())
    defaults = app["tool"]["flwr"]["app"]["config"]
    given = {**defaults, "schema": str(sites / SCHEMA_FILE), "out": str(tmp_path / "x")}
    assignment = assignment_from(given)
    assert assignment.job.sites == 3
    assert assignment.job.config.methods == ("gen",)
    assert assignment.job.config.lr == Config().lr
    assert set(SETTINGS) <= set(defaults)


def test_what_a_run_can_be_told_the_app_can_be_told(sites: Path, tmp_path: Path) -> None:
    changes = {
        "methods": "fed+prox+prior+mix,gen",
        "seeds": 2,
        "first-seed": 3,
        "client-shares": "0.2,0.3,0.5",
        "scores": "daps",
        "epsilon": 8.0,
        "standardise": True,
        "vae-lr": 0.01,
        "tune-rounds": 3,
        "missing": "impute",
        "stride": 5,
    }
    job = assignment_from(settings_for(sites, tmp_path / "x", **changes)).job
    assert job.config.methods == ("fed+prox+prior+mix", "gen")
    assert list(job.config.seed_range) == [3, 4]
    assert job.config.client_shares == (0.2, 0.3, 0.5)
    assert (job.config.gen.vae.lr, job.config.personal.tune_rounds) == (0.01, 3)
    assert (job.missing, job.stride, job.config.standardise) == ("impute", 5, True)
    with pytest.raises(Exception, match="did you mean rounds"):
        assignment_from(settings_for(sites, tmp_path / "x", round=3))


def test_a_trial_of_parties_that_know_nodes_by_a_key(sites: Path, tmp_path: Path) -> None:
    """The column of keys reaches every site: with all its words it would be no feature."""
    parties = tmp_path / "parties"
    shutil.copytree(sites, parties, ignore=shutil.ignore_patterns(".*", "results", "*.jsonl"))
    with_keys(parties)
    told = {"methods": "fed+neighbours", "rounds": 1, "hidden": 8, "alphas": "0.3"}
    told |= {"match": "person", "neighbour_least": 2}
    said: list[str] = []
    out = trial(str(parties), None, told, tmp_path / "out", say=said.append)
    info = json.loads((out / "run.json").read_text())
    assert min(info["chosen_on_validation"]["fed+neighbours"]["received"][0]) > 0
    logs = [log.read_text() for log in (tmp_path / "out-processes").glob("*.log")]
    assert sum("links or keys are in common with" in log for log in logs) == 3
    written = [*out.rglob("*.csv"), *(tmp_path / "out-sites").rglob("*.parquet")]
    assert len(written) >= 5
    assert {file.stat().st_mode & 0o777 for file in written} == {0o600}  # for their owners alone


def test_a_trial_ends_when_one_of_its_processes_has_ended(tmp_path: Path) -> None:
    with LocalFederation(tmp_path / "processes", []) as up:
        up.start("ada", sys.executable, "-c", "print('no nodes here')")
        with pytest.raises(DataError, match=r"ada has stopped; the end of .*: no nodes here"):
            _follow(up, tmp_path / "out", 0.0, lambda _said: None)
