"""One contract for all carriers, on the same party folders and seeds.

A job through messages gives, byte for byte, what parties asked one after another give. All seeds
as one program give the same choices, weights to 1e-5 (1e-9 in double precision), thresholds to the
last bits of the logits, and the same sets but for labels whose score is the threshold up to these
bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from fedcover import plans
from fedcover.algorithm.session import Outcome, Session
from fedcover.carriers.loopback import Loopback
from fedcover.carriers.network import journal
from fedcover.carriers.network.coordinator import Coordinator
from fedcover.carriers.network.member import InProcess
from fedcover.carriers.stacked import Stacked
from fedcover.config import (
    METHODS,
    GenSettings,
    NeighbourSettings,
    NeighGenSettings,
    PersonalSettings,
    recipe_of,
)
from fedcover.config.names import GROUP_QUANTILES, QUANTILES, SCORES
from fedcover.errors import UsageError
from fedcover.graphs.labels import spelt_sets
from fedcover.graphs.readers import read_folder
from fedcover.graphs.schema import Schema
from fedcover.graphs.sites import common_schema, site_folders
from fedcover.party import calibration
from fedcover.party.data import listed_links, party_data
from fedcover.party.party import Party
from fedcover.plans import cases_of
from fedcover.training.plan import Plan

from .network.conftest import make_job, members, with_keys, with_links

QUICK: dict[str, Any] = {
    "neighgen": NeighGenSettings(warm_up=2, rounds=2, local_epochs=1, latent=8, hidden=8),
    "personal": PersonalSettings(tune_rounds=2, local_rounds=3),
}

OF_A_NETWORK = ("data/hello", "data/sites", "data/close")  # how sites and a job meet and part


def recipes(base: str) -> tuple[str, ...]:
    """Every recipe of a base method that makes sense."""
    found = []
    for parts in product(("", "+prox"), ("", "+prior"), ("", "+tuned", "+mix")):
        try:
            found.append(str(recipe_of(base + "".join(parts))))
        except UsageError:
            continue
    return tuple(found)


FEDERATED = tuple(name for name, method in METHODS.items() if method.federated)
CASES: dict[str, dict[str, Any]] = {
    "fed": {"methods": ("fed",), "seeds": 2, "scores": ("lac", "raps")},
    "patience": {"methods": ("loc", "fed"), "seeds": 3, "rounds": 12, "patience": 1, "lr": 0.3},
    "gen": {"methods": ("gen",), "scores": ("lac", "aps")},
    "gen none": {
        "methods": ("gen", "fed"),
        "gen": GenSettings(prototypes=(2, 3), shares=(0, 0.5), link_rounds=3, screening=2),
    },
    "epsilon": {"methods": ("gen",), "epsilon": 50.0},
    "fedsage+": {
        "methods": ("fedsage+",),
        "neighgen": NeighGenSettings(warm_up=2, rounds=2, local_epochs=1, latent=8, hidden=8),
    },
    "default recipe": {"methods": ("fed+prox+prior+mix",), "stride": 4, "standardise": True},
    "gen recipe": {"methods": ("gen+prior+mix", "fed+tuned"), "rounds": 2},
    "loc": {"methods": ("loc",), "rounds": 7, "stride": 3, "patience": 2},
    "graph scores": {"methods": ("fed",), "scores": ("daps", "snaps"), "asked_about": "test"},
    "shares": {
        "methods": ("fed",),
        "quantiles": ("exact", "average", "tdigest", "pooled"),
        "client_shares": (1, 2, 3),
    },
    "confidence": {"methods": ("fed",), "alphas": (0.4,), "confidence": 0.7},
    "robust": {"methods": ("fed",), "alphas": (0.4,), "robust": 1},
    "class": {"methods": ("fed",), "calibrate": "class", "scores": ("lac", "aps")},
    "client": {"methods": ("fed",), "calibrate": "client", "standardise": True},
    "averaged": {"methods": ("fed",), "temperature": "averaged", "empty_sets": False},
    "batches": {"methods": ("fed",), "batch_size": 4, "model": "sage"},
}


@pytest.mark.parametrize("double", [False, True], ids=["single", "double"])
@pytest.mark.parametrize("base", FEDERATED)
def test_every_method_with_every_part(
    base: str, double: bool, sites: Path, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    if double:
        monkeypatch.setattr(plans, "Plan", partial(Plan, dtype=torch.float64))
    compare(sites, schema, methods=recipes(base), rounds=3, double=double, **QUICK)


@pytest.mark.parametrize("kind", ["pooled", "client", "class"])
def test_every_score_with_every_rule(kind: str, sites: Path, schema: Schema) -> None:
    rules = QUANTILES if kind == "pooled" else GROUP_QUANTILES
    compare(sites, schema, scores=SCORES, quantiles=rules, calibrate=kind)


@pytest.mark.parametrize("case", CASES)
def test_further_settings(case: str, sites: Path, schema: Schema) -> None:
    compare(sites, schema, **CASES[case])


@pytest.mark.parametrize("test", [None, 0.0])
def test_with_drawn_roles_missing_values_groups_and_nodes_without_a_label(
    sites: Path, schema: Schema, test: float | None
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
        test=test,
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


NEIGHBOURS: dict[str, dict[str, Any]] = {
    "numbers": {"methods": ("fed+neighbours",), "seeds": 2},
    "standardised": {"methods": ("loc+neighbours",), "standardise": True},
    "default recipe": {"methods": ("fed+neighbours+prox+prior+mix",), "stride": 2},
    "gen": {"methods": ("gen+neighbours+prior",), "rounds": 2},
    "fedsage+": {"methods": ("fedsage++neighbours",), "rounds": 2},
    "labels": {"methods": ("fed+neighbours+tuned",), "neighbour": {"values": "labels"}},
    "encoding": {"methods": ("fed+neighbours",), "neighbour": {"values": "encoding"}},
    "epsilon": {
        "methods": ("fed+neighbours",),
        "neighbour": {"epsilon": 8.0, "cap": 3, "least": 1, "norm": 2.0},
    },
    "five": {"methods": ("fed+neighbours",), "neighbour": {"least": 5}, "model": "sage"},
}


@pytest.mark.parametrize("case", NEIGHBOURS)
def test_sums_over_neighbours_at_other_parties(case: str, sites: Path, schema: Schema) -> None:
    changes = {"rounds": 3, "seeds": 1, "personal": QUICK["personal"], **NEIGHBOURS[case]}
    neighbour = NeighbourSettings(**changes.pop("neighbour", {}))
    neighgen = {"neighgen": QUICK["neighgen"]} if case == "fedsage+" else {}
    compare(with_links(sites), schema, neighbour=neighbour, **changes, **neighgen)


def test_sums_of_features_that_are_0_or_1(sites: Path) -> None:
    for folder in site_folders(with_links(sites)):
        nodes = pl.read_csv(folder / "nodes.csv")
        bits = nodes.with_columns((pl.col("f6", "f7") > 0).cast(pl.Int8))
        bits.write_csv(folder / "nodes.csv")
    schema = common_schema(site_folders(sites))
    assert schema.binary
    compare(sites, schema, methods=("fed+neighbours",), seeds=1)


def test_sums_over_nodes_with_the_same_key(sites: Path, schema: Schema) -> None:
    settings = {"neighbour": NeighbourSettings(least=2), "seeds": 2, "match": "person"}
    compare(with_keys(sites), schema, methods=("fed+neighbours",), **settings)


@dataclass
class Run:
    """One seed's parties, who leads them, and what came of each method."""

    parties: list[Party]
    session: Session
    outcomes: dict[str, Outcome]


def compare(sites: Path, schema: Schema, *, double: bool = False, **changes: Any) -> None:
    job, folder = make_job(**{"seeds": 2, **changes}), sites / "job"
    wire = InProcess(members(sites, job.config.neighbour.least))
    leader = Coordinator(job, schema, wire, folder)
    outcomes = leader.run()
    ledgers = journal.ledgers(folder / journal.FILE, leader.sites, list(outcomes))
    config = leader.job.config
    reading = {"missing": job.missing, "group": job.group, "match": job.match}
    graphs = [read_folder(folder, schema, **reading) for folder in site_folders(sites)]

    def begun(seed: int, stride: int) -> Run:
        parties = []
        for number, (folder, graph) in enumerate(zip(site_folders(sites), graphs, strict=True)):
            data = party_data(graph, config, seed, number, folder.name)
            there = wire._members[folder.name]._under_way.party(seed)
            own = folder.name, number, len(graphs)
            links = listed_links(graph, *own, dict(zip(leader.sites, range(9), strict=False)).get)
            data = replace(data, secret=there.data.secret, links=links)
            parties.append(Party(data, config, len(schema.labels)))
        size = len(schema.labels), len(schema.feature_names)
        census, impute = Loopback(parties).census, job.missing == "impute"
        session = Session(config, *size, census, leader.sites, impute=impute, stride=stride)
        return Run(parties, session, {})

    alone, together = (
        {seed: begun(seed, stride) for seed in outcomes} for stride in (job.stride, 1)
    )
    accounts = {}
    for seed, run in alone.items():
        carrier = Loopback(run.parties)
        accounts[seed] = carrier.ledger
        carrier.carry(run.session.prepare())
        for method, outcome in outcomes[seed].items():
            run.outcomes[method] = carrier.carry(run.session.method(method))
            same(outcome, run.outcomes[method])
            for party, graph in zip(run.parties, graphs, strict=True):
                there = wire._members[party.data.name]._under_way.party(seed)
                if outcome.recipe.neighbours:
                    same_sums(party, there)
                for part in outcome.recipe.models.values():
                    for left, right in zip(party.weights[part], there.weights[part], strict=True):
                        assert left.numpy().tobytes() == right.numpy().tobytes()
                same_sets(sites, party, graph, method)
        own = {e for e in _entries(ledgers[seed]) if e[0] not in OF_A_NETWORK}
        assert own == _entries(carrier.ledger)

    stacked = Stacked([Loopback(run.parties) for run in together.values()])
    stacked.carry([run.session.prepare() for run in together.values()])
    for method in config.methods:
        found = stacked.carry([run.session.method(method) for run in together.values()])
        for run, outcome in zip(together.values(), found, strict=True):
            run.outcomes[method] = outcome
    for seed, one in zip(outcomes, stacked.repetitions, strict=True):
        alike(alone[seed], together[seed], double)
        if job.stride == 1:
            assert _entries(one.ledger) == _entries(accounts[seed])


def alike(alone: Run, together: Run, double: bool) -> None:
    """What all seeds as one program give, beside what one party after another gives."""
    ties = labels = 0
    for method, left in alone.outcomes.items():
        right = together.outcomes[method]
        one, other = left.chosen, right.chosen
        losses = [chosen.get("valid_loss") for chosen in (one, other)]  # rounded, maybe apart
        assert losses[0] == pytest.approx(losses[1], abs=3e-5)
        assert one | {"valid_loss": 0} == other | {"valid_loss": 0}
        # FedSage+'s generators are trained in single precision, whatever the models are.
        # NeighGen trains in single precision, whose last digit depends on the processor.
        exact = 1e-6 if left.recipe.method.graph == "mended" else 1e-9
        near = {"rtol": 0.0, "atol": exact if double else 1e-5}
        for kind, part in left.recipe.models.items():
            assert (left.models[kind].best, left.models[kind].rounds) == (
                right.models[kind].best,
                right.models[kind].rounds,
            )
            for one, other in zip(alone.parties, together.parties, strict=True):
                for a, b in zip(one.weights[part], other.weights[part], strict=True):
                    torch.testing.assert_close(a, b, **near)
        one, other = left.calibrated, right.calibrated
        assert (one.raps, one.diffusion, one.terms) == (other.raps, other.diffusion, other.terms)
        for case, (a, b) in enumerate(zip(one.thresholds, other.thresholds, strict=True)):
            assert (a.pooled.rank, a.pooled.n_calibration) == (
                b.pooled.rank,
                b.pooled.n_calibration,
            )
            np.testing.assert_allclose(a.q_hats, b.q_hats, rtol=0, atol=1e-4)
            for mine, its in zip(alone.parties, together.parties, strict=True):
                differ = mine.sets[method][case] != its.sets[method][case]
                ties, labels = ties + int(differ.sum()), labels + differ.size
                name = cases_of(mine.config)[case][0]
                rows = calibration.scores(mine, method, name)[mine.data.asked]
                gap = np.abs(rows[..., None] - a.q_hats).min(axis=-1)
                assert (gap[differ] < 1e-4).all()
    assert ties <= 0.01 * labels, f"{ties} of {labels} labels"


def same(left: Outcome, right: Outcome) -> None:
    assert (left.chosen, left.temperatures) == (right.chosen, right.temperatures)
    assert {k: m.losses for k, m in left.models.items()} == {
        k: m.losses for k, m in right.models.items()
    }
    one, other = left.calibrated, right.calibrated
    assert one.temperature == other.temperature
    assert (one.raps, one.diffusion, one.terms) == (other.raps, other.diffusion, other.terms)
    assert one.thresholds == other.thresholds
    assert one.tallies.keys() == other.tallies.keys()
    assert all(np.array_equal(one.tallies[k], other.tallies[k]) for k in one.tallies)
    assert one.correct == other.correct


def same_sums(party: Party, there: Party) -> None:
    """What came of the exchange: there is some, and it is the same bit for bit."""
    mine, its = (one.knows(plans.SUMS) for one in (party, there))
    assert len(mine["node"]) > 0
    assert mine.keys() == its.keys()
    for name, array in mine.items():
        left, right = (getattr(one, "toarray", lambda one=one: one)() for one in (array, its[name]))
        assert np.array_equal(left, right)


def same_sets(sites: Path, party: Party, graph: Any, method: str) -> None:
    """What the site wrote down is what the party holds."""
    (file,) = (sites / party.data.name / "results").glob(f"*/sets-{method}.parquet")
    rows = pl.read_parquet(file).filter(pl.col("seed") == party.data.seed)
    cases = zip(cases_of(party.config), party.sets[method], strict=True)
    for (score, rule, alpha), sets in cases:
        key = (pl.col("score") == score) & (pl.col("quantile") == rule) & (pl.col("alpha") == alpha)
        own = rows.filter(key)
        assert own["node"].to_list() == [str(graph.node_ids[node]) for node in party.data.asked]
        assert own["set"].to_list() == list(map(list, spelt_sets(sets, graph.label_names)))


def _entries(ledger: Any) -> set[tuple]:
    return {
        (e.part, e.verb, e.array, e.direction, e.party, e.round, e.rounds, e.type, e.shape)
        for e in ledger
    }
