"""+neighbours over a network: what sites refuse, what nobody hears, what an interruption does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedcover.carriers.network import job as jobs
from fedcover.carriers.network import site_job
from fedcover.carriers.network.coordinate import coordinate
from fedcover.carriers.network.coordinator import Coordinator
from fedcover.carriers.network.job import Assignment
from fedcover.carriers.network.member import InProcess, Member
from fedcover.carriers.network.messages import Item, Order, Place, Reply
from fedcover.config import Config, NeighbourSettings
from fedcover.errors import DataError
from fedcover.graphs import load
from fedcover.graphs.schema import Schema
from fedcover.graphs.sites import site_folders
from fedcover.plans import KEYS
from fedcover.simulation import run

from .conftest import make_job, members, only, settings, with_keys
from .test_faults import Troubled, lost, phase_of
from .test_in_process import CrashError, Dying, sets_of

METHOD = "fed+neighbours"
LEAST_2 = NeighbourSettings(least=2)
EXCHANGE = ("neighbours/keys", "neighbours/matching", "neighbours/sums")


@pytest.fixture
def job(linked: Path, assignment: Callable[..., Assignment]) -> Assignment:
    return assignment(methods=(METHOD,), rounds=2)


class Heard(InProcess):
    """Remembers all orders and replies."""

    def __init__(self, parts: list[Member]) -> None:
        super().__init__(parts)
        self.orders: list[Order] = []
        self.replies: list[Reply] = []

    def exchange(self, orders: Mapping[str, Order], seconds: float) -> Iterator[tuple[str, Reply]]:
        self.orders += orders.values()
        for name, reply in super().exchange(orders, seconds):
            self.replies.append(reply)
            yield name, reply

    @property
    def content(self) -> bytes:
        messages = [message for one in (*self.orders, *self.replies) for message in one.messages]
        return b"".join(array.tobytes() for _, arrays in messages for array in arrays.values())


def test_it_gives_what_a_simulation_gives(
    linked: Path, coordinator: Callable[..., Coordinator]
) -> None:
    methods = {"methods": (METHOD, "loc+neighbours+prior"), "seeds": 2}
    outcomes = coordinator(**methods).run()
    whole = run(load(linked), Config(**settings(**methods)))
    for place, found in enumerate(outcomes.values()):
        received = whole.info["chosen_on_validation"][METHOD]["received"][place]
        assert found[METHOD].chosen["received"] == received
        assert min(received) > 0
    keys = ["method", "score", "quantile", "alpha", "seed", "node"]
    here = whole.sets.with_columns(pl.col("node").str.split("/").list.last())
    ours = sets_of(linked).select(*keys, "set", "covered").sort(keys)
    assert ours.equals(here.select(*keys, "set", "covered").sort(keys))


def test_all_sites_may_be_needed_for_what_only_some_are_asked(
    linked: Path, coordinator: Callable[..., Coordinator]
) -> None:
    """A sum is of all sites but its owner, who is not asked."""
    found = only(coordinator(methods=(METHOD,), rounds=1, least=3).run())[METHOD]
    assert sum(found.chosen["received"]) > 0


def test_keys_give_what_a_simulation_gives(
    sites: Path, coordinator: Callable[..., Coordinator], schema: Schema
) -> None:
    with_keys(sites)
    job = make_job(methods=(METHOD,), neighbour=LEAST_2, match="person")
    Coordinator(job, schema, InProcess(members(sites, 2))).run()
    config = Config(**settings(methods=(METHOD,), neighbour=LEAST_2))
    whole = run(load(sites, match="person", schema=schema), config)
    here = whole.sets.with_columns(pl.col("node").str.split("/").list.last())
    keys = ["score", "quantile", "alpha", "seed", "node"]
    ours = sets_of(sites).select(*keys, "set").sort(keys)
    assert ours.equals(here.select(*keys, "set").sort(keys))


@pytest.mark.parametrize("match", [None, "person"])
def test_no_name_and_no_key_is_in_any_message_or_ledger(
    match: str | None, linked: Path, schema: Schema
) -> None:
    if match is not None:
        for file in linked.glob("*/links.csv"):
            file.unlink()
        with_keys(linked)
    wire = Heard(members(linked, 2))
    job = make_job(methods=(METHOD,), neighbour=LEAST_2, rounds=1, match=match)
    found = only(Coordinator(job, schema, wire, linked / "job").run())[METHOD]
    assert sum(found.chosen["received"]) > 0
    written = [file.read_bytes() for file in linked.rglob("*.jsonl")]
    assert len(written) == 4
    heard = b"".join([wire.content, *written])
    assert b"neighbours/matching" in heard
    for folder in site_folders(linked):
        nodes = pl.read_csv(folder / "nodes.csv")
        for name in nodes["id"]:
            assert f"{name}".encode() not in heard
    assert b"person " not in heard


def test_a_link_that_one_side_alone_lists_changes_nothing(
    linked: Path, coordinator: Callable[..., Coordinator]
) -> None:
    first = only(coordinator(methods=(METHOD,)).run())[METHOD]
    listed = [
        (folder.name, row["node"], row["party"], row["other"])
        for folder in site_folders(linked)
        for row in pl.read_csv(folder / "links.csv").iter_rows(named=True)
    ]
    both = [one for one in listed if (*one[2:], *one[:2]) in listed]
    assert 0 < len(both) < len(listed)
    for folder in site_folders(linked):
        rows = [one[1:] for one in both if one[0] == folder.name]
        table = pl.DataFrame(rows, schema=("node", "party", "other"), orient="row")
        table.write_csv(folder / "links.csv")
    second = only(coordinator(methods=(METHOD,)).run())[METHOD]
    assert first.chosen["received"] == second.chosen["received"]
    assert first.calibrated.thresholds == second.calibrated.thresholds


# What a site refuses.


def test_a_site_has_a_floor_of_its_own_for_far_ends(
    linked: Path, schema: Schema, coordinator: Callable[..., Coordinator]
) -> None:
    with pytest.raises(
        DataError, match=r"neighbour_least is 2; this site adds to no sum of fewer "
    ):
        coordinator(methods=(METHOD,), neighbour=LEAST_2).run()
    job = make_job(methods=(METHOD,), neighbour=LEAST_2, rounds=1)
    Coordinator(job, schema, InProcess(members(linked, 2))).run()
    with pytest.raises(DataError, match="fewer than 4 far ends"):
        Coordinator(make_job(), schema, InProcess(members(linked, 4))).run()


def test_noise_does_not_lower_the_floor(coordinator: Callable[..., Coordinator]) -> None:
    noisy = NeighbourSettings(epsilon=1.0, least=1)
    with pytest.raises(DataError, match="fewer than 3 far ends"):
        coordinator(methods=(METHOD,), neighbour=noisy).run()


def test_no_coordinator_makes_a_site_send_sums_without_masks(
    linked: Path, coordinator: Callable[..., Coordinator]
) -> None:
    with pytest.raises(DataError, match="matching is open, which is for simulations"):
        coordinator(methods=(METHOD,), matching="open").run()


def test_what_is_wrong_with_links_is_told_without_their_values(
    linked: Path, coordinator: Callable[..., Coordinator]
) -> None:
    with (linked / "ada" / "links.csv").open("a") as file:
        file.write("secret,bob,bob-1\n")
    with pytest.raises(DataError) as caught:
        coordinator(methods=(METHOD,)).run()
    said = str(caught.value)
    assert "Site ada cannot take part: links.csv, line 15" in said
    assert "column 'node': (a value) is not the id of a node" in said
    assert "secret" not in said


def test_links_and_keys_together_are_refused_without_the_folder_s_place(
    linked: Path, coordinator: Callable[..., Coordinator]
) -> None:
    with_keys(linked)
    with pytest.raises(DataError, match="cannot take part: match is") as caught:
        coordinator(methods=(METHOD,), match="person").run()
    assert str(linked) not in str(caught.value)


def test_links_to_a_site_that_takes_no_part_are_said_once_and_left_out(
    linked: Path, coordinator: Callable[..., Coordinator], caplog: pytest.LogCaptureFixture
) -> None:
    with (linked / "ada" / "links.csv").open("a") as file:
        file.write("ada-1,dan,x\nada-2,dan,y\n")
    with caplog.at_level(logging.WARNING):
        coordinator(methods=(METHOD,), seeds=2, rounds=1).run()
    said = [line for line in caplog.messages if "takes no part" in line]
    assert said == ["links to dan are not used: it takes no part in this job"]


def test_a_site_may_be_called_otherwise_than_its_folder(
    linked: Path, schema: Schema, tmp_path: Path, coordinator: Callable[..., Coordinator]
) -> None:
    expected = only(coordinator(methods=(METHOD,)).run())[METHOD]
    moved = (linked / "bob").rename(tmp_path / "ada")  # a folder called as another site
    parts = [Member(linked / "ada"), Member(moved, name="bob"), Member(linked / "cleo")]
    found = only(Coordinator(make_job(methods=(METHOD,)), schema, InProcess(parts)).run())[METHOD]
    assert found.chosen == expected.chosen
    assert found.calibrated.thresholds == expected.calibrated.thresholds


def test_a_job_where_nobody_has_links_says_that_they_change_nothing(
    coordinator: Callable[..., Coordinator],
) -> None:
    found = only(coordinator(methods=(METHOD, "fed"), rounds=2).run())
    assert found[METHOD].chosen["received"] == [0, 0, 0]
    assert any("+neighbours changes nothing" in note for note in found[METHOD].notes)
    assert found[METHOD].calibrated.thresholds == found["fed"].calibrated.thresholds


# Interrupted.


def results(job: Assignment) -> bytes:
    return (job.out / "results.csv").read_bytes().replace(job.out.name.encode(), b"out")


def named(job: Assignment, name: str) -> Assignment:
    return replace(job, out=job.out.with_name(name))


def test_a_coordinator_that_is_killed_amid_the_exchange_goes_on_to_the_same_result(
    linked: Path, job: Assignment
) -> None:
    wire = Heard(members(linked))
    coordinate(job, wire)
    rounds = [phase_of(order) for order in wire.orders[::3]]
    last = max(at for at, phase in enumerate(rounds, 1) if phase in EXCHANGE)
    assert last >= 6
    expected = results(job)
    moments = (1, 3, last - 1, last)
    for at in moments:
        again = named(job, f"out-{at}")
        with pytest.raises(CrashError):
            coordinate(again, Dying(members(linked), at, at % 3))
        coordinate(again, InProcess(members(linked)))
        assert results(again) == expected, at
    sets = sets_of(linked)
    assert len(sets) == len(sets.unique()) * (1 + len(moments))  # each job wrote the same


class Forgetful(InProcess):
    """Every order is answered by a new process, so to speak; some twice, as after a lost reply."""

    def __init__(self, sites: Path, job: str) -> None:
        super().__init__(members(sites))
        self._sites, self._twice = sites, job == "twice"

    def exchange(self, orders: Mapping[str, Order], seconds: float) -> Iterator[tuple[str, Reply]]:
        for name, order in orders.items():
            reply = Member(self._sites / name).answer(order)
            if self._twice:
                again = Member(self._sites / name).answer(order)
                for first, second in zip(reply.contents, again.contents, strict=True):
                    assert first.keys() == second.keys()
                    assert all(np.array_equal(first[key], second[key]) for key in first)
            yield name, reply


@pytest.mark.parametrize("how", ["once", "twice"])
def test_a_site_that_is_killed_amid_the_exchange_goes_on_to_the_same_result(
    how: str, linked: Path, job: Assignment
) -> None:
    coordinate(job, InProcess(members(linked)))
    again = named(job, "again")
    coordinate(again, Forgetful(linked, how))
    assert (again.out / "results.csv").read_bytes().replace(b"again", b"out") == results(job)
    sets = sets_of(linked)
    assert len(sets) == 2 * len(sets.unique())


@pytest.mark.parametrize("phase", EXCHANGE)
def test_the_exchange_needs_every_site_and_goes_on_when_all_are_there(
    phase: str, linked: Path, job: Assignment
) -> None:
    coordinate(job, InProcess(members(linked)))
    again = named(job, "again")
    with pytest.raises(DataError, match=r"start (it|the job) again to go on from here"):
        coordinate(again, Troubled(linked, lost("cleo", phase)))
    assert not again.out.exists()
    coordinate(again, InProcess(members(linked)))
    assert results(again).replace(b"again", b"out") == results(job)


def test_the_floor_and_the_settings_agree() -> None:
    assert NeighbourSettings().least >= site_job.MIN_FAR_ENDS
    assert jobs.job_from({"methods": METHOD}).config.neighbour.least >= site_job.MIN_FAR_ENDS


# What a coordinator that breaks the rules may try.


@pytest.mark.parametrize(
    "part", ["neighbours/matching asked", "neighbours/sums for 0", "neighbours/sums", "keys"]
)
def test_nobody_writes_into_a_site_s_own_memory(
    part: str, linked: Path, coordinator: Callable[..., Coordinator]
) -> None:
    """Such as which links are in common, or other keys once the exchange has begun."""

    class Meddling(InProcess):
        told = 0

        def exchange(
            self, orders: Mapping[str, Order], seconds: float
        ) -> Iterator[tuple[str, Reply]]:
            for name, order in orders.items():
                if "match" in [place.verb for place in order.places]:
                    keys = np.zeros((3, 32), dtype=np.uint8)
                    item = Item(Place(0, KEYS if part == "keys" else part, "", 0), {"keys": keys})
                    order = replace(order, told=(*order.told, item))
                    self.told += 1
                yield from super().exchange({name: order}, seconds)

    wire = Meddling(members(linked))
    with pytest.raises(DataError, match=r"nobody else can set it|keys cannot change"):
        coordinator(methods=(METHOD,), transport=wire).run()
    assert wire.told


def test_a_site_adds_up_no_encodings_that_could_be_solved_for(
    linked: Path, schema: Schema, coordinator: Callable[..., Coordinator]
) -> None:
    many = {"neighbour": NeighbourSettings(values="encoding"), "hidden": 512}
    with pytest.raises(DataError, match="can be solved for these, so this site takes part with"):
        coordinator(methods=(METHOD,), rounds=1, **many).run()
    noise = {"neighbour": NeighbourSettings(values="encoding", epsilon=8.0), "hidden": 512}
    assert only(coordinator(methods=(METHOD,), rounds=1, **noise).run())


def test_far_ends_are_asked_for_before_any_threshold_is_known(
    linked: Path, coordinator: Callable[..., Coordinator]
) -> None:
    """Whoever holds them cannot choose what it says by others' calibration nodes."""
    wire = Heard(members(linked))
    coordinator(methods=("fed", METHOD), rounds=2, transport=wire).run()
    verbs = [place.verb for order in wire.orders for place in order.places]
    assert max(k for k, verb in enumerate(verbs) if verb == "far ends") < verbs.index("quantile")
