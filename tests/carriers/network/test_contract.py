"""A job through messages gives, byte for byte, what parties asked one after another give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fedcover.algorithm.calibrate import cases_of
from fedcover.algorithm.session import Outcome, Session
from fedcover.carriers.loopback import Loopback
from fedcover.carriers.network import journal
from fedcover.carriers.network.coordinator import Coordinator
from fedcover.carriers.network.in_process import InProcess
from fedcover.carriers.network.journal import Journal
from fedcover.config import NeighGenSettings
from fedcover.graphs.labels import spelt_sets
from fedcover.graphs.readers import read_folder
from fedcover.graphs.schema import Schema
from fedcover.graphs.sites import site_folders
from fedcover.graphs.splits import Role
from fedcover.party.data import party_data
from fedcover.party.party import Party

from .conftest import make_job, members

CASES: dict[str, dict[str, Any]] = {
    "fed": {"methods": ("fed",), "seeds": 2, "scores": ("lac", "raps")},
    "patience": {"methods": ("loc", "fed"), "seeds": 3, "rounds": 12, "patience": 1, "lr": 0.3},
    "gen": {"methods": ("gen",), "scores": ("lac", "aps")},
    "epsilon": {"methods": ("gen",), "epsilon": 50.0},
    "fedsage+": {
        "methods": ("fedsage+",),
        "neighgen": NeighGenSettings(warm_up=2, rounds=2, local_epochs=1, latent=8, hidden=8),
    },
    "default recipe": {"methods": ("fed+prox+prior+mix",), "stride": 4, "standardise": True},
    "gen recipe": {"methods": ("gen+prior+mix", "fed+tuned"), "rounds": 2},
    "loc": {"methods": ("loc",), "rounds": 7, "stride": 3, "patience": 2},
    "graph scores": {"methods": ("fed",), "scores": ("daps", "snaps"), "quantiles": ("mixture",)},
    "shares": {
        "methods": ("fed",),
        "quantiles": ("mixture", "average", "tdigest", "pooled"),
        "mixture": (1, 2, 3),
    },
    "class": {"methods": ("fed",), "calibrate": "class", "scores": ("lac", "aps")},
    "client": {"methods": ("fed",), "calibrate": "client", "standardise": True},
    "averaged": {"methods": ("fed",), "temperature": "averaged", "empty_sets": False},
    "batches": {"methods": ("fed",), "batch_size": 4, "model": "sage"},
}


@pytest.mark.parametrize("case", CASES)
def test_both_give_the_same(case: str, sites: Path, schema: Schema) -> None:
    compare(sites, schema, **CASES[case])


def test_with_drawn_roles_missing_values_groups_and_nodes_without_a_label(
    sites: Path, schema: Schema
) -> None:
    for folder in site_folders(sites):
        nodes = pl.read_csv(folder / "nodes.csv").drop("split").with_row_index()
        row = pl.col("index")
        nodes = nodes.with_columns(
            label=pl.when(row % 9 == 4).then(None).otherwise(pl.col("label")),
            f6=pl.when(row % 7 == 3).then(None).otherwise(pl.col("f6")),
            ward=pl.when(row % 2 == 0).then(pl.lit("north")).otherwise(pl.lit(folder.name)),
        )
        nodes.drop("index").write_csv(folder / "nodes.csv")
    compare(
        sites,
        schema,
        methods=("fed", "fed+mix"),
        seeds=2,
        calibrate="group",
        group="ward",
        missing="impute",
        standardise=True,
    )


def test_private_noise_is_a_secret_of_its_site(sites: Path, schema: Schema) -> None:
    """The coordinator knows the seed; from it alone nobody finds the noise again."""

    def sent() -> list[int]:
        wire = InProcess(members(sites))
        Coordinator(make_job(methods=("gen",), epsilon=50.0), schema, wire).run()
        return [one._under_way.party(0).data.secret for one in wire._members.values()]

    first, second = sent(), sent()
    assert len({*first, *second}) == 2 * len(first)
    assert 0 not in first


def compare(sites: Path, schema: Schema, **changes: Any) -> None:
    job, wire, book = make_job(**changes), InProcess(members(sites)), Journal()
    leader = Coordinator(job, schema, wire, journal=book)
    outcomes = leader.run()
    ledgers = journal.ledgers(book.entries, leader.sites, list(outcomes))
    for seed, found in outcomes.items():
        config, reading = leader.job.config, {"missing": job.missing, "group": job.group}
        parties, graphs = [], []
        for number, folder in enumerate(site_folders(sites)):
            graphs.append(read_folder(folder, schema, **reading))
            data = party_data(graphs[-1], config, seed, number, folder.name)
            there = wire._members[folder.name]._under_way.party(seed)
            data = replace(data, secret=there.data.secret)
            parties.append(Party(data, config, len(schema.labels)))
        carrier = Loopback(parties)
        session = Session(
            config,
            len(schema.labels),
            len(schema.feature_names),
            carrier.census,
            leader.sites,
            impute=job.missing == "impute",
            stride=job.stride,
        )
        carrier.carry(session.prepare())
        for method, outcome in found.items():
            same(outcome, carrier.carry(session.method(method)))
            for party, graph in zip(parties, graphs, strict=True):
                there = wire._members[party.data.name]._under_way.party(seed)
                for part in outcome.recipe.models.values():
                    for left, right in zip(
                        party.weights[part].tensors(), there.weights[part].tensors(), strict=True
                    ):
                        assert left.numpy().tobytes() == right.numpy().tobytes()
                same_sets(sites, party, graph, method)
        own = {e for e in _entries(ledgers[seed]) if e[0] not in ("data/hello", "data/sites")}
        assert own == _entries(carrier.ledger)


def same(left: Outcome, right: Outcome) -> None:
    assert (left.chosen, left.temperatures) == (right.chosen, right.temperatures)
    assert {k: m.losses for k, m in left.models.items()} == {
        k: m.losses for k, m in right.models.items()
    }
    one, other = left.calibrated, right.calibrated
    assert one.temperature == other.temperature
    assert (one.raps, one.diffusion, one.shares) == (other.raps, other.diffusion, other.shares)
    assert one.thresholds == other.thresholds
    assert one.tallies.keys() == other.tallies.keys()
    assert all(np.array_equal(one.tallies[k], other.tallies[k]) for k in one.tallies)
    assert one.correct == other.correct


def same_sets(sites: Path, party: Party, graph: Any, method: str) -> None:
    """What the site wrote down is what the party holds."""
    (file,) = (sites / party.data.name / "results").glob(f"*/sets-{method}.parquet")
    rows = pl.read_parquet(file).filter(pl.col("seed") == party.data.seed)
    test = party.data.nodes(Role.TEST)
    cases = zip(cases_of(party.config), party.sets[method], strict=True)
    for (score, rule, alpha), sets in cases:
        key = (pl.col("score") == score) & (pl.col("quantile") == rule) & (pl.col("alpha") == alpha)
        own = rows.filter(key)
        assert own["node"].to_list() == [str(graph.node_ids[node]) for node in test]
        assert own["set"].to_list() == list(map(list, spelt_sets(sets, graph.label_names)))


def _entries(ledger: Any) -> set[tuple]:
    return {
        (e.part, e.verb, e.array, e.direction, e.party, e.round, e.rounds, e.type, e.shape)
        for e in ledger
    }
