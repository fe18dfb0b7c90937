"""The short version over real processes: a SuperLink and three SuperNodes, with TLS."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from fedcover.experiment import Config
from fedcover.flower import keys
from fedcover.flower.local import HOST, LocalFederation
from fedcover.flower.settings import assignment_from
from fedcover.graphs.sites import SCHEMA_FILE, site_folders
from fedcover.parties.coordinate import Assignment, coordinate
from fedcover.parties.loopback import Loopback
from fedcover.parties.member import Member

from .conftest import running, until

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


def settings_for(sites: Path, out: Path, **changes: object) -> dict[str, object]:
    return {**SETTINGS, "schema": sites / SCHEMA_FILE, "out": out, **changes}


def sets_below(sites: Path) -> pl.DataFrame:
    files = sorted(sites.glob("*/results/*/sets-*.parquet"))
    return pl.concat([pl.read_parquet(file) for file in files])


def test_three_nodes_over_tls_give_what_one_process_gives(
    sites: Path, tmp_path: Path, toy_sites: Callable[..., Path]
) -> None:
    out = tmp_path / "over-tls"
    settings = settings_for(sites, out)
    with running(tmp_path, sites) as federation:
        federation.start_job(settings)
        until((out / "run.json").exists, LIMIT, "no run folder")

    same = toy_sites(tmp_path / "sites", ("ada", "bob", "cleo"))
    job = assignment_from(settings)
    here = Assignment(job.job, job.schema, tmp_path / "here")
    coordinate(here, Loopback([Member(folder) for folder in site_folders(same)]))
    for table in ("results.csv", "groups.csv"):
        found = (out / table).read_bytes().replace(b"over-tls", b"here")
        assert found == (here.out / table).read_bytes()  # q_hat bit for bit
    assert sets_below(sites).equals(sets_below(same))
    assert not list(out.glob("sets-*"))
    assert pl.read_parquet(out / "sets.parquet").is_empty()  # results stay home
    assert (out / "report.html").stat().st_size > 1000


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


def test_a_setting_that_is_wrong_is_named(sites: Path, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="alphas"):
        assignment_from(settings_for(sites, tmp_path / "x", alphas="1.5"))
    with pytest.raises(Exception, match="schema"):
        assignment_from({"out": "x"})
    with pytest.raises(Exception, match="rounds is 0"):
        assignment_from(settings_for(sites, tmp_path / "x", rounds=0))


def test_every_setting_of_the_app_is_read(sites: Path, tmp_path: Path) -> None:
    import tomllib

    from fedcover.flower.local import APP

    app = tomllib.loads((APP / "pyproject.toml").read_text())
    defaults = app["tool"]["flwr"]["app"]["config"]
    given = {**defaults, "schema": str(sites / SCHEMA_FILE), "out": str(tmp_path / "x")}
    assignment = assignment_from(given)
    assert assignment.job.sites == 3
    assert assignment.job.config.methods == ("gen",)
    assert assignment.job.config.lr == Config().lr
    assert set(SETTINGS) <= set(defaults)
