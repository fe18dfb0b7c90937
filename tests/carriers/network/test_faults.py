"""Sites that die, come back, lie, or run out of disk: the round goes on, and says with whom."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from fedcover.algorithm.requests import Census, Train
from fedcover.carriers.messages import result_of
from fedcover.carriers.network import journal
from fedcover.carriers.network.coordinate import FAILURE, coordinate, notes
from fedcover.carriers.network.coordinator import Coordinator
from fedcover.carriers.network.job import Assignment, roll, terms_text
from fedcover.carriers.network.journal import Refusal, sentences
from fedcover.carriers.network.member import MEMORY, REMEMBERED, InProcess, Member, _without_values
from fedcover.carriers.network.messages import Item, Order, Place, Reply
from fedcover.config import GenSettings, VaeSettings
from fedcover.conformal.protocol import text
from fedcover.errors import DataError, UsageError
from fedcover.fixed_point import encode
from fedcover.graphs.schema import Schema
from fedcover.graphs.sites import site_folders
from fedcover.models import Weights
from fedcover.party import local_training
from fedcover.party.party import Party
from fedcover.training.plan import Plan
from fedcover.training.program import NO_LOSS, fraction_bits

from .conftest import make_job, members, only

Change = Callable[[str, Order, Reply], Reply | None]


class Troubled(InProcess):
    """Changes or loses replies on their way."""

    def __init__(self, sites: Path, change: Change) -> None:
        super().__init__(members(sites))
        self._change = change
        self.asked: list[tuple[str, Order]] = []

    def exchange(self, orders: Mapping[str, Order], seconds: float) -> Iterator[tuple[str, Reply]]:
        self.asked += list(orders.items())
        for name, reply in super().exchange(orders, seconds):
            changed = self._change(name, orders[name], reply)
            if changed is not None:
                yield name, changed


def phase_of(order: Order) -> str:
    return order.places[0].phase


def round_of(order: Order) -> int:
    return order.places[0].round


def order(job: str, part: str, verb: str, round_: int, query: Any = None, told: Any = ()) -> Order:
    """An order with one question, of the first repetition."""
    seed = None if verb == "hello" else 0
    return Order(job, (Item(Place(seed, part, verb, round_), query or {}),), tuple(told))


def lost(who: str, phase: str, rounds: range | None = None) -> Change:
    """The site does not answer in a phase (in these rounds)."""

    def change(name: str, order: Order, reply: Reply) -> Reply | None:
        gone = name == who and phase_of(order).endswith(phase)
        return None if gone and (rounds is None or round_of(order) in rounds) else reply

    return change


def spoilt(who: str, phase: str, how: Callable[[dict[str, Any]], dict[str, Any]]) -> Change:
    """The site's replies in a phase are changed."""

    def change(name: str, order: Order, reply: Reply) -> Reply:
        if name != who or not phase_of(order).endswith(phase):
            return reply
        first, *others = reply.contents
        if set(first) == {"loss", "count"}:  # of the last average
            return reply
        return replace(reply, contents=(how(dict(first)), *others))

    return change


def test_a_round_goes_on_without_a_site_that_died(
    sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    leader = coordinator(Troubled(sites, lost("bob", "shared", range(1, 3))), rounds=5)
    outcome = only(leader.run())["fed"]
    answered = leader.record.answered["fed/shared"]
    assert answered == [(0, 1, 2), (0, 2), (0, 2), (0, 1, 2), (0, 1, 2), (0, 1, 2)]
    assert outcome.calibrated.parties == {0, 1, 2}
    assert [t.pooled.clients for t in outcome.calibrated.thresholds] == [3, 3]


def test_averages_weigh_those_that_answered() -> None:
    plan = Plan("gcn", classes=3)
    census = Census({0: {"train": 10}, 1: {"train": 30}, 2: {"train": 60}})
    names = ("first", "first_bias", "second", "second_bias")
    replies = {}
    for site, value, share, valid in ((1, 1.0, 0.3, 3), (2, 4.0, 0.6, 5)):
        change = encode(np.full((1, 2), value * share), fraction_bits(plan.dtype))
        replies[site] = dict.fromkeys(names, change)
        replies[site] |= {"loss": encode([value]), "count": np.array([valid])}
    start = Weights(*(torch.zeros(1, 2) for _ in names))
    found = result_of(Train("fed/shared", plan, 1, start), replies, census)
    np.testing.assert_allclose(found.model.weights.first, 3.0, rtol=1e-6)
    np.testing.assert_allclose(found.losses, 5.0 / 8)


@pytest.mark.parametrize("phase", ["temperature", "quantile"])
@pytest.mark.parametrize("rounds", [range(1), range(1, 400)])
def test_a_site_that_misses_calibration_is_named_and_makes_no_sets(
    phase: str, rounds: range, sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    leader = coordinator(Troubled(sites, lost("cleo", phase, rounds)))
    outcomes = leader.run()
    outcome = only(outcomes)["fed"].calibrated
    assert outcome.parties == {0, 1}
    assert all(t.pooled.clients == 2 for t in outcome.thresholds)
    calib = [leader.census.counts[k]["calib"] for k in (0, 1)]
    assert all(t.pooled.n_calibration == sum(calib) for t in outcome.thresholds)
    said = notes(leader, outcomes)
    assert any("cleo missed the calibration" in note and "ada, bob" in note for note in said)
    assert not list((sites / "cleo").glob("results/*/*.parquet"))
    assert len(list((sites / "ada").glob("results/*/*.parquet"))) == 1


def test_too_few_sites_end_the_job_with_a_sentence_and_it_can_go_on(
    sites: Path, assignment: Callable[..., Assignment]
) -> None:
    whole = assignment(rounds=5)

    def change(name: str, order: Order, reply: Reply) -> Reply | None:
        bad = order.places[0][1:] == ("fed/shared", "train", 3) and name != "ada"
        return None if bad else reply

    with pytest.raises(DataError, match="fed/shared, round 3: 1 of 3 sites answered"):
        coordinate(whole, Troubled(sites, change))
    assert not whole.out.exists()
    again = Troubled(sites, lambda _name, _order, reply: reply)
    coordinate(whole, again)
    asked = [order.places[0] for name, order in again.asked if name == "bob"]
    # The first three rounds were in the checkpoint.
    assert [place.round for place in asked if place.verb == "train"] == [3, 4, 5]


def test_a_late_reply_is_not_used_and_its_site_is_back(
    sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    held: list[tuple[str, Reply]] = []

    class Slow(InProcess):
        def exchange(
            self, orders: Mapping[str, Order], seconds: float
        ) -> Iterator[tuple[str, Reply]]:
            late, held[:] = list(held), []
            yield from late
            for name, reply in super().exchange(orders, seconds):
                if name == "bob" and reply.places == ((0, "fed/shared", "train", 1),):
                    held.append((name, reply))
                else:
                    yield name, reply

    leader = coordinator(Slow(members(sites)))
    leader.run()
    assert leader.record.answered["fed/shared"][1:3] == [(0, 2), (0, 1, 2)]
    assert any("bob came after the round was over" in str(r) for r in leader.record.refused)


def wrapping(counts: np.ndarray) -> np.ndarray:
    """Counts with the same sum, if an integer is let run over."""
    found = counts.copy()
    found[:4] += 2**62
    assert found.sum() == counts.sum()
    return found


BAD: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "NaN": ("shared", lambda c: c | {"first": np.full(c["first"].shape, np.nan)}, "type"),
    "infinite": ("shared", lambda c: c | {"second": c["second"] + np.inf}, "type"),
    "large": ("shared", lambda c: c | {"second": c["second"] + 2**60}, "cannot be"),
    "shape": ("shared", lambda c: c | {"first_bias": c["first_bias"][:-1]}, "shape"),
    "dtype": ("shared", lambda c: c | {"first": c["first"].astype(complex)}, "bytes"),
    "integers": ("shared", lambda c: c | {"second_bias": c["second_bias"].astype("i4")}, "type"),
    "name": ("shared", lambda c: {k: v for k, v in c.items() if k != "loss"}, "not"),
    "loss": ("shared", lambda c: c | {"loss": -c["loss"] - 1}, "negative loss"),
    "no loss": ("shared", lambda c: c | {"loss": 0 * c["loss"] + NO_LOSS}, "not finite"),
    "validation": ("shared", lambda c: c | {"count": c["count"] + 1}, "validation nodes"),
    "negative": ("quantile", lambda c: {"counts": c["counts"] - 1}, "negative count"),
    "sum": ("quantile", lambda c: {"counts": np.minimum(c["counts"], 1)}, "counts"),
    "wrapping": ("quantile", lambda c: {"counts": wrapping(c["counts"])}, "count above"),
    "slopes": ("temperature", lambda c: {"slopes": c["slopes"][:3]}, "shape"),
    "steep": ("temperature", lambda c: {"slopes": c["slopes"] + 2**60}, "so large"),
    "no slopes": ("temperature", lambda _c: {}, "nothing"),
    "words": ("temperature", lambda c: {"slopes": c["slopes"].astype(str)}, "type"),
    "raps": ("raps", lambda _c: {}, "nothing"),
    "raps shape": ("raps", lambda c: {k: v[:1] for k, v in c.items()}, "shape"),
    "raps counts": ("raps", lambda c: {k: v - 1 for k, v in c.items()}, "not counts"),
    "talk": ("quantile", lambda c: {"7.counts": c["counts"]}, "7.counts"),
    "NaN row": ("prototypes", lambda c: {k: v * np.nan for k, v in c.items()}, "not finite"),
    "infinite row": ("prototypes", lambda c: {k: v + np.inf for k, v in c.items()}, "not finite"),
    "width": ("prototypes", lambda c: {k: v[:, 1:] for k, v in c.items()}, ", 8)"),
    "rows": ("prototypes", lambda c: c | {"2": np.zeros((3, 8), np.float32)}, "not (2, 8)"),
    "grid": ("prototypes", lambda c: {"2": c["2"]}, "has 2, not 2, 3"),
    "big": ("shared", lambda c: {k: np.repeat(v, 10, axis=0) for k, v in c.items()}, "bytes"),
    "tally": ("sets", lambda c: c | {"tally": c["tally"] + 1}, "test nodes"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_reply_is_refused_by_name_and_the_round_goes_on(
    kind: str, sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    phase, how, words = BAD[kind]
    method = "gen" if phase == "prototypes" else "fed"
    scores = ("lac", "raps") if phase == "raps" else ("lac",)
    trouble = Troubled(sites, spoilt("bob", phase, how))
    leader = coordinator(trouble, methods=(method,), rounds=2, scores=scores)
    outcome = only(leader.run())[method]
    assert leader.record.answered[f"{method}/{phase}"][0] == (0, 2)
    refusal = str(leader.record.refused[0])
    assert f"{method}/{phase}, round 0: the reply of bob was refused" in refusal
    assert words in refusal
    assert outcome.calibrated.thresholds


@pytest.mark.parametrize(
    ("rule", "how", "words"),
    [
        ("average", lambda c: c | {"n": c["n"] + 1}, "scores where it has"),
        ("average", lambda c: c | {"quantile": c["quantile"] * np.nan}, "not finite"),
        ("average", lambda c: c | {"quantile": np.zeros(2, np.float32)}, "shape"),
        ("tdigest", lambda c: {"sketch": c["sketch"][:-9]}, "cannot be read"),
        ("tdigest", lambda c: {"sketch": np.zeros(0, np.uint8)}, "cannot be read"),
        ("tdigest", lambda c: {"sketch": c["sketch"].astype(float)}, "no sketch"),
        ("tdigest", lambda _c: {}, "no sketch"),
    ],
)
def test_what_cannot_be_a_quantile_or_a_sketch_is_refused(
    rule: str, how: Any, words: str, sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    trouble = Troubled(sites, spoilt("bob", "quantile", how))
    leader = coordinator(trouble, rounds=1, quantiles=(rule,))
    assert only(leader.run())["fed"].calibrated.parties == {0, 2}
    assert words in str(leader.record.refused[0])


@pytest.mark.parametrize("name", ["0", "0.", "x.counts", ".counts", "0.counts.0", "²"])
def test_names_that_no_talk_has_are_refused(
    name: str, sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    stray = spoilt("bob", "quantile", lambda c: {**c, name: c["0.counts"]})
    leader = coordinator(Troubled(sites, stray), rounds=1, calibrate="class")
    assert only(leader.run())["fed"].calibrated.parties == {0, 2}
    assert "the reply of bob was refused" in str(leader.record.refused[0])


@pytest.mark.parametrize("phase", ["raps", "weights"])
@pytest.mark.parametrize("round_", range(5))
def test_constants_are_chosen_though_a_site_misses_a_round(
    phase: str, round_: int, sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    score = {"raps": "raps", "weights": "daps"}[phase]
    trouble = Troubled(sites, lost("bob", f"fed/{phase}", range(round_, round_ + 1)))
    leader = coordinator(trouble, rounds=1, scores=(score,))
    found = only(leader.run())["fed"].calibrated
    assert found.raps or found.diffusion
    assert found.parties == {0, 1, 2}
    assert leader.record.answered[f"fed/{phase}"][round_] == (0, 2)


def test_a_group_that_a_site_has_begun_to_count_is_not_left_out(
    sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    def change(name: str, order: Order, reply: Reply) -> Reply:
        if name != "bob" or order.places[0].verb != "quantile" or round_of(order) != 1:
            return reply
        fewer = [{k: v for k, v in c.items() if k != "1.counts"} for c in reply.contents]
        return replace(reply, contents=tuple(fewer))

    leader = coordinator(Troubled(sites, change), rounds=1, calibrate="class")
    assert only(leader.run())["fed"].calibrated.parties == {0, 2}
    assert "does not answer what was asked" in str(leader.record.refused[0])


def test_groups_have_thresholds_where_the_pooled_one_is_infinite(
    coordinator: Callable[..., Coordinator],
) -> None:
    leader = coordinator(rounds=1, calibrate="client", alphas=(0.01, 0.3))
    low, high = only(leader.run())["fed"].calibrated.thresholds
    assert low.pooled.q_hat == np.inf
    assert all(np.isfinite(one.q_hat) for one in high.groups)
    assert not leader.record.refused


HOSTILE: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]], dict[str, Any]]] = {
    "temperature": (
        "fed/temperature",
        lambda c: c | {"temperature": np.array([-1e6])},
        {"temperature": "averaged"},
    ),
    "columns": ("data/columns", lambda c: c | {"numeric": c["numeric"] + 7}, {"standardise": True}),
    "sums": ("data/statistics", lambda c: c | {"sums": c["sums"] + 2**62}, {"standardise": True}),
    "count": ("data/statistics", lambda c: c | {"count": c["count"] + 999}, {"standardise": True}),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_statistics_that_cannot_be_are_refused(
    kind: str, sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    part, how, settings = HOSTILE[kind]

    def change(name: str, order: Order, reply: Reply) -> Reply:
        if name != "bob" or order.places[0].part != part:
            return reply
        return replace(reply, contents=tuple(how(dict(c)) for c in reply.contents))

    leader = coordinator(Troubled(sites, change), rounds=1, **settings)
    assert only(leader.run())["fed"].calibrated.thresholds
    assert "that cannot be" in str(leader.record.refused[0])


@pytest.mark.parametrize("how", [lambda _c: {}, lambda _c: {"names": np.full(3, 255, np.uint8)}])
def test_names_of_groups_that_are_none_are_refused(
    how: Any, sites: Path, schema: Schema, coordinator: Callable[..., Coordinator]
) -> None:
    for folder in site_folders(sites):
        nodes = pl.read_csv(folder / "nodes.csv").with_columns(ward=pl.lit("north"))
        nodes.write_csv(folder / "nodes.csv")

    def change(name: str, order: Order, reply: Reply) -> Reply:
        if name != "bob" or order.places[0].verb != "groups":
            return reply
        return replace(reply, contents=(how(reply.contents[0]),))

    leader = coordinator(Troubled(sites, change), rounds=1, calibrate="group", group="ward")
    leader.run()
    assert leader.groups == ("north",)
    assert "data/groups, round 0: the reply of bob was refused" in str(leader.record.refused[0])


@pytest.mark.parametrize("name", ["a\u2028b", "a\nb"])
def test_a_name_cannot_spoil_the_ledger(
    name: str, sites: Path, assignment: Callable[..., Assignment]
) -> None:
    stray = spoilt("bob", "shared", lambda c: {**c, name: c["loss"]})
    whole = assignment(rounds=1)
    out = coordinate(whole, Troubled(sites, stray))
    assert len(pl.read_parquet(out / "ledger.parquet"))


def test_a_site_that_is_wrong_in_one_answer_is_not_heard_in_the_others(
    sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    def change(name: str, order: Order, reply: Reply) -> Reply:
        if name != "bob" or order.places[0].verb != "quantile" or len(reply.contents) < 2:
            return reply
        return replace(reply, contents=reply.contents[:-1])

    leader = coordinator(Troubled(sites, change), seeds=2)
    outcomes = leader.run()
    assert all(found["fed"].calibrated.parties == {0, 2} for found in outcomes.values())
    assert "3 answers to 4 questions" in str(leader.record.refused[0])


def test_counts_of_groups_must_be_what_was_asked_for(
    sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    stray = spoilt("bob", "quantile", lambda c: {"7.counts": c["0.counts"]})
    leader = coordinator(Troubled(sites, stray), calibrate="class")
    assert only(leader.run())["fed"].calibrated.parties == {0, 2}
    assert "does not answer what was asked" in str(leader.record.refused[0])


def test_counts_must_go_on_from_those_of_the_byte_before(
    sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    """Right in the first round, wrong in the third."""

    def change(name: str, order: Order, reply: Reply) -> Reply:
        if name != "ada" or order.places[0].verb != "quantile" or round_of(order) != 2:
            return reply
        counts = reply.contents[0]["counts"].copy()
        counts[17] += 1
        return replace(reply, contents=({"counts": counts}, *reply.contents[1:]))

    leader = coordinator(Troubled(sites, change))
    assert only(leader.run())["fed"].calibrated.parties == {1, 2}
    assert "ada was refused" in str(leader.record.refused[0])


def test_a_replay_of_an_older_round_is_not_used(
    sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    kept: dict[int, Reply] = {}

    def change(name: str, order: Order, reply: Reply) -> Reply:
        if name == "cleo" and order.places[0].verb == "train":
            kept[round_of(order)] = reply
            return kept[0]
        return reply

    leader = coordinator(Troubled(sites, change))
    leader.run()
    assert leader.record.answered["fed/shared"][:4] == [(0, 1, 2), (0, 1), (0, 1), (0, 1)]
    assert any("round 0: the reply of cleo" in str(r) for r in leader.record.refused)


def test_a_schema_that_differs_is_refused_with_site_and_column(
    sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    nodes = pl.read_csv(sites / "bob" / "nodes.csv").rename({"f3": "weight"})
    nodes.write_csv(sites / "bob" / "nodes.csv")
    with pytest.raises(DataError, match=r"Site bob cannot take part: nodes.csv.*'f3' is missing"):
        coordinator().run()


def test_a_proof_of_another_schema_is_refused(
    sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    class Liar(InProcess):
        def greet(self, order: Order, sites: int, seconds: float) -> dict[str, Reply]:
            found = super().greet(order, sites, seconds)
            wrong = {**found["ada"].contents[0], "proof": np.zeros(32, np.uint8)}
            return found | {"ada": replace(found["ada"], contents=(wrong,))}

    with pytest.raises(DataError, match="Site ada cannot take part: its schema"):
        coordinator(Liar(members(sites))).run()


def test_a_site_that_never_comes_is_missed(
    sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    with pytest.raises(DataError, match=r"3 of 4 sites came within .* \(ada, bob, cleo\)"):
        coordinator(sites=4).run()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own with a quarter of a megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "fedcover", str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a disk that can be full needs mount, as root: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(disk: Path) -> Path:
    file = disk / "filler"
    with file.open("wb", buffering=0) as open_, contextlib.suppress(OSError):
        while open_.write(bytes(4096)):
            pass
    return file


def test_a_full_disk_is_a_missing_site_not_a_wrong_file(
    sites: Path, coordinator: Callable[..., Coordinator], small_disk: Path
) -> None:
    """It fills before the sets are written; every file on it is whole."""
    part = [Member(sites / "ada"), Member(sites / "bob", small_disk), Member(sites / "cleo")]

    class Filling(InProcess):
        def exchange(
            self, orders: Mapping[str, Order], seconds: float
        ) -> Iterator[tuple[str, Reply]]:
            if next(iter(orders.values())).places[0].verb == "sets":
                fill(small_disk)
            return super().exchange(orders, seconds)

    leader = coordinator(Filling(part))
    outcomes = leader.run()
    assert only(outcomes)["fed"].calibrated.tallies.keys() == {0, 2}
    assert any(r.site == "bob" and "No space left" in r.why for r in leader.record.refused)
    assert not list(small_disk.glob("results/*/sets-*"))
    assert list(journal.read(small_disk / journal.FILE))
    for memory in small_disk.glob(".fedcover/*/*.npz"):
        with np.load(memory) as stored:
            assert all(stored[name] is not None for name in stored.files)
    said = notes(leader, outcomes)
    assert any("bob did not say what its sets hold" in note for note in said)


def test_a_coordinator_with_a_full_disk_says_so_and_goes_on_later(
    sites: Path, assignment: Callable[..., Assignment], small_disk: Path, tmp_path: Path
) -> None:
    whole = coordinate(assignment(rounds=6), InProcess(members(sites)))
    job = replace(assignment(rounds=6), out=small_disk / "run")

    def full_in_round_3(name: str, order: Order, reply: Reply) -> Reply:
        if phase_of(order).endswith("shared") and round_of(order) == 3:
            fill(small_disk)
        return reply

    with pytest.raises(DataError, match=r"No space left on device.*start the job again"):
        coordinate(job, Troubled(sites, full_in_round_3))
    assert not job.out.exists()
    (small_disk / "filler").unlink()
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    coordinate(job, InProcess(members(sites)))
    found = (job.out / "results.csv").read_bytes().replace(b"run,", b"out,")
    assert found == (whole / "results.csv").read_bytes()


def test_a_coordinator_cannot_ask_for_prototypes_of_single_nodes(
    sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    with pytest.raises(DataError, match="fewer than 5 nodes behind it"):
        coordinator(methods=("gen",), gen=GenSettings(vae=VaeSettings(min_cluster=1))).run()


def test_what_a_site_refuses_at_hello_it_refuses_later_too(
    sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    greedy = coordinator(methods=("gen",), gen=GenSettings(vae=VaeSettings(min_cluster=1)))
    with pytest.raises(DataError):
        greedy.run()
    one = members(sites)[0]
    rolled = {"roll": roll(greedy.job_id, ["ada", "bob", "cleo"])}
    told = [Item(Place(None, "data/sites", "", 0), rolled)]
    reply = one.answer(order(greedy.job_id, "gen/prototypes", "prototypes", 0, {}, told))
    assert "fewer than 5 nodes" in reply.problem
    assert not reply.contents


def test_settings_and_sets_cannot_be_changed_on_the_way(
    sites: Path, coordinator: Callable[..., Coordinator], schema: Schema
) -> None:
    leader = coordinator()
    leader.run()
    one = members(sites)[0]
    made = {file: file.read_bytes() for file in sites.glob("ada/results/*/*.parquet")}
    other = text(terms_text(make_job(rounds=9)))
    hello = {"settings": other, "schema": text(schema.to_json()), "nonce": text("n")}
    reply = one.answer(order(leader.job_id, "data/hello", "hello", 0, hello))
    assert "cannot change on the way" in reply.problem
    for q_hat, words in (([0.5, 0.5], "made already"), ([np.nan, 1.0], "one number")):
        query = {"q_hat": np.array(q_hat)[:, None]}
        reply = one.answer(order(leader.job_id, "fed/sets", "sets", 7, query))
        assert words in reply.problem
    tricked = [
        Item(Place(None, part, "", 0), arrays)
        for part, arrays in (("hello", hello), ("last", {"head": text("x")}))
    ]
    one.answer(order(leader.job_id, "fed/shared", "dance", 0, {}, tricked))
    query = {"q_hat": np.array([[0.5], [0.5]])}
    again = members(sites)[0].answer(order(leader.job_id, "fed/sets", "sets", 8, query))
    assert "made already" in again.problem
    assert made == {file: file.read_bytes() for file in made}


def test_no_value_leaves_in_an_error_and_the_error_is_in_the_ledger(
    sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    nodes = sites / "bob" / "nodes.csv"
    lines = nodes.read_text().splitlines()
    cells = lines[3].split(",")
    lines[3] = ",".join([*cells[:-1], "secretvalue"])
    nodes.write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError) as refusal:
        coordinator().run()
    said = str(refusal.value)
    assert "Site bob cannot take part: nodes.csv, line 4, column 'f7'" in said
    assert "secret" not in said
    (row,) = [r for r in journal.read(sites / "bob" / journal.FILE) if r["direction"] == "up"]
    assert (row["array"], row["verb"]) == ("problem", "hello")


def test_a_job_goes_on_without_a_site_that_cannot_come_back(
    sites: Path, assignment: Callable[..., Assignment]
) -> None:
    """The site's data have changed while the coordinator was down."""
    job = assignment(rounds=4)

    def lose(name: str, order: Order, reply: Reply) -> Reply | None:
        bad = order.places[0][1:] == ("fed/shared", "train", 2) and name != "ada"
        return None if bad else reply

    with pytest.raises(DataError, match="at least 2 must"):
        coordinate(job, Troubled(sites, lose))
    (sites / "cleo" / "edges.csv").write_text("source,target\nnobody,nowhere\n")
    coordinate(job, InProcess(members(sites)))
    info = json.loads((job.out / "run.json").read_text())
    assert any("cleo missed the calibration" in note for note in info["notes"])
    assert len(info["federation"]["answered"]["fed/shared"]) >= 4  # the rounds before, as well


@pytest.mark.parametrize("what", ["schema", "average"])
def test_a_job_cannot_go_on_with_other_terms(
    what: str, sites: Path, assignment: Callable[..., Assignment]
) -> None:
    def early(order: Order) -> bool:
        return round_of(order) < 2

    job = assignment(rounds=4)
    with pytest.raises(DataError, match="at least 2 must"):
        coordinate(job, Troubled(sites, lambda n, o, r: r if early(o) or n == "ada" else None))
    if what == "schema":
        other = replace(job, schema=replace(job.schema, labels=job.schema.labels[::-1]))
    else:
        other = replace(job, job=replace(job.job, average="median"))
    with pytest.raises(DataError, match="other settings or another schema"):
        coordinate(other, InProcess(members(sites)))


def test_one_site_s_losses_do_not_choose_the_round_of_a_robust_average(
    sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    def grow(name: str, order: Order, reply: Reply) -> Reply:
        if name != "bob" or "loss" not in reply.contents[0]:
            return reply
        loud = reply.contents[0]["loss"] + encode([1e6 * (1 + round_of(order))])
        return replace(reply, contents=({**reply.contents[0], "loss": loud},))

    honest = only(coordinator(rounds=6, average="median").run())["fed"].chosen["best_round"]
    found = only(coordinator(Troubled(sites, grow), rounds=6, average="median").run())["fed"]
    assert found.chosen["best_round"] == honest > 1


def test_what_nobody_foresaw_is_left_for_whoever_waits(
    sites: Path, assignment: Callable[..., Assignment]
) -> None:
    class Broken(InProcess):
        def exchange(
            self, orders: Mapping[str, Order], seconds: float
        ) -> Iterator[tuple[str, Reply]]:
            raise ZeroDivisionError("oh")

    job = assignment()
    with pytest.raises(ZeroDivisionError):
        coordinate(job, Broken(members(sites)))
    assert "ZeroDivisionError: oh" in (job.beside / FAILURE).read_text()


def test_an_unknown_job_is_not_answered(sites: Path) -> None:
    one = members(sites)[0]
    reply = one.answer(order("0123", "fed/shared", "train", 0))
    assert "must say hello first" in reply.problem


@pytest.mark.parametrize("job", ["../../elsewhere", "", "JOB", "a" * 65])
def test_a_job_s_name_cannot_lead_out_of_the_site_s_folder(job: str, sites: Path) -> None:
    before = sorted(sites.rglob("*"))
    reply = members(sites)[0].answer(order(job, "data/hello", "hello", 0))
    assert "hexadecimal" in reply.problem
    assert sorted(sites.rglob("*")) == before


def test_an_order_that_makes_no_sense_is_a_sentence(
    sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    leader = coordinator()
    leader.run()
    one = members(sites)[0]
    for wrong in (
        order(leader.job_id, "fed/shared", "dance", 0),
        order(leader.job_id, "fed/shared", "train", 9, {"first": np.zeros(2)}),
        order(leader.job_id, "nothing/shared", "train", 9),
        order(leader.job_id, "fed/quantile", "quantile", 9, {"asked": np.array([99])}),
        order("abcdef", "data/hello", "hello", 0, {"settings": np.zeros(3, np.uint8)}),
        Order(leader.job_id, (Item(Place(7, "fed/shared", "train", 0)),)),
        Order(leader.job_id, ()),
    ):
        assert one.answer(wrong).problem


def test_a_site_forgets_jobs_of_long_ago(
    sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    for _ in range(7):
        coordinator(rounds=1).run()
    assert len(list((sites / "ada" / MEMORY).iterdir())) == REMEMBERED


def test_what_was_refused_again_and_again_is_said_once() -> None:
    why = "was refused: it has a value in 'first' that is not finite"
    found = sentences([Refusal("fed/shared", k, "bob", why) for k in (2, 3, 7)])
    assert found == [f"fed/shared, 3 times in rounds 2 to 7: the reply of bob {why}."]
    assert sentences([Refusal("fed/shared", 2, "bob", why)]) == [
        f"fed/shared, round 2: the reply of bob {why}."
    ]


def test_a_site_that_is_known_to_be_gone_is_not_waited_for(
    sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    class Gone(InProcess):
        """The last site is gone, and nobody else ever ends the round."""

        def exchange(
            self, orders: Mapping[str, Order], seconds: float
        ) -> Iterator[tuple[str, Reply | None]]:
            for name, reply in super().exchange(orders, seconds):
                yield name, (None if name == "cleo" else reply)
            raise AssertionError("the round is over, and someone still waits")

    leader = coordinator(Gone(members(sites)))
    outcomes = leader.run()
    assert only(outcomes)["fed"].calibrated.parties == {0, 1}
    assert not leader.record.refused


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        ("nodes.csv, line 4, column 'age': 'se' \"cret' is not a number.",
         "nodes.csv, line 4, column 'age': (a value) is not a number."),
        ("column 'age' is missing, the agreed feature 2.", None),
        ("column 'label' has \"it's\", which is not agreed.",
         "column 'label' has (a value), which is not agreed."),
        ("there is not enough memory.", None),
    ],
)  # fmt: skip
def test_an_error_keeps_its_place_and_loses_its_value(sentence: str, told: str | None) -> None:
    assert _without_values(sentence) == (told or sentence)


@pytest.mark.parametrize("shares", [None, (1, 2, 3)])
def test_shares_of_test_nodes_are_of_those_that_calibrate(
    shares: tuple[int, ...] | None, sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    changes = {"client_shares": shares}
    leader = coordinator(Troubled(sites, lost("cleo", "quantile", range(1, 400))), **changes)
    outcome = only(leader.run())["fed"].calibrated
    assert outcome.parties == {0, 1}
    assert all(t.pooled.clients == 2 for t in outcome.thresholds)


CLAIM = 100_000


class Boasting(Troubled):
    """Bob claims 100,000 calibration and test nodes more, and that all his scores are 0."""

    def __init__(self, sites: Path) -> None:
        super().__init__(sites, self._boast)
        self._total = 0

    def greet(self, order: Order, wanted: int, seconds: float) -> dict[str, Reply]:
        replies = dict(super().greet(order, wanted, seconds))
        (said,) = replies["bob"].contents
        counts = said["counts"] + CLAIM * np.array([2, 0, 0, 1, 1, 0])
        self._total = int(counts[3])
        return replies | {"bob": replace(replies["bob"], contents=({**said, "counts": counts},))}

    def _boast(self, name: str, order: Order, reply: Reply) -> Reply:
        if name != "bob" or order.places[0].verb != "quantile":
            return reply
        query = order.items[0].arrays
        zero = 0x8000_0000 >> 8 * (3 - int(query["depth"][0]))  # the key of 0.0, as far as asked
        counts = np.zeros(256, np.int64)
        if zero >> 8 == int(query["prefix"][0]):
            counts[zero & 255] = self._total
        return replace(reply, contents=({"counts": counts},))


@pytest.mark.parametrize("limit", [1.0, 0.5])
def test_a_site_cannot_bring_the_threshold_to_0_by_claiming_many_nodes(
    limit: float, sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    changes = {"alphas": (0.3,), "rounds": 2}
    honest = only(coordinator(**changes).run())["fed"].calibrated
    leader = coordinator(Boasting(sites), max_share=limit, **changes)
    outcomes = leader.run()
    found = only(outcomes)["fed"].calibrated
    assert not [str(r) for r in leader.record.refused if "quantile" in r.phase]
    assert found.parties == {0, 1, 2}
    q_hat = found.thresholds[0].pooled.q_hat
    said = [note for note in notes(leader, outcomes) if "above max_share" in note]
    if limit == 1.0:
        assert q_hat == 0.0
        assert not said
    else:
        assert 0.0 < q_hat < honest.thresholds[0].pooled.q_hat
        assert len(said) == 1
        assert "bob claims 99." in said[0]
        assert "it counts as 50.00%" in said[0]


def zeros(name: str, order: Order, reply: Reply) -> Reply:
    """All of bob's scores are in the first bin, he says."""
    if name != "bob" or order.places[0].verb != "spread":
        return reply
    counts = np.zeros_like(reply.contents[0]["counts"])
    counts[:, 0] = reply.contents[0]["counts"].sum(axis=1)
    return replace(reply, contents=({"counts": counts},))


def test_a_site_unlike_the_others_is_left_out_and_named(
    sites: Path, assignment: Callable[..., Assignment]
) -> None:
    job = assignment(robust=1, rounds=2)
    wire = Troubled(sites, zeros)
    info = json.loads((coordinate(job, wire) / "run.json").read_text())
    assert info["left_out"] == {"fed": [["bob"]]}
    assert any("the scores of bob are the least like" in note for note in info["notes"])
    asked = {name for name, order in wire.asked if order.places[0].verb == "quantile"}
    assert asked == {"ada", "cleo"}
    assert list((sites / "bob").glob("results/*/*.parquet"))  # he has his sets all the same


def test_a_site_that_counts_otherwise_than_it_said_is_refused(
    sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    """An honest spread, then scores that are all 0."""

    def change(name: str, order: Order, reply: Reply) -> Reply:
        if name != "ada" or order.places[0].verb != "quantile" or round_of(order):
            return reply
        low = []
        for content in reply.contents:
            counts = np.zeros(256, np.int64)
            counts[0x80] = content["counts"].sum()
            low.append({"counts": counts})
        return replace(reply, contents=tuple(low))

    def both(name: str, order: Order, reply: Reply) -> Reply:
        return change(name, order, zeros(name, order, reply))

    leader = coordinator(Troubled(sites, both), robust=1, rounds=2, least=1)
    found = only(leader.run())["fed"].calibrated
    assert found.left_out == {1}
    assert 0 not in found.parties
    assert "do not agree with the spread" in str(leader.record.refused[0])


def test_a_site_that_missed_its_own_training_catches_up(
    sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    """Whatever it missed depends on nobody else: its model is the one that it would have had."""
    wire = Missing(sites)
    leader = coordinator(wire, methods=("loc",), rounds=8, stride=2)
    best = only(leader.run())["loc"].chosen["best_round"]
    assert leader.record.answered["loc/shared"] == [(0, 1, 2), (0, 2), (0, 2), (0, 1, 2)]
    for member in wire._members.values():
        found = member._under_way.party(0)
        alone = Party(found.data, found.config, found.classes)
        local_training.finish(alone, "loc/shared", {"keep": np.array(best)})
        pair = (one.weights["loc/shared"] for one in (found, alone))
        assert all(torch.equal(left, right) for left, right in zip(*pair, strict=True))


class Missing(InProcess):
    """Bob does not even hear of rounds 2 to 5 of his own training."""

    def __init__(self, sites: Path) -> None:
        super().__init__(members(sites))

    def exchange(self, orders: Mapping[str, Order], seconds: float) -> Iterator[tuple[str, Reply]]:
        deaf = round_of(orders["ada"]) in (2, 4) and orders["ada"].places[0].verb == "train alone"
        heard = {name: order for name, order in orders.items() if not deaf or name != "bob"}
        # He is there again at once: whoever is away is not waited for.
        return iter(sorted(super().exchange(heard, seconds), key=lambda pair: pair[0] != "bob"))


def test_two_jobs_do_not_write_one_folder(
    sites: Path, assignment: Callable[..., Assignment]
) -> None:
    wanted = assignment(methods=("fed",), rounds=1)

    class Second(InProcess):
        refused = ""

        def exchange(
            self, orders: Mapping[str, Order], seconds: float
        ) -> Iterator[tuple[str, Reply]]:
            with pytest.raises(UsageError, match="another job is writing"):
                coordinate(wanted, InProcess(members(sites)))
            yield from super().exchange(orders, seconds)

    coordinate(wanted, Second(members(sites)))
    coordinate(wanted, InProcess(members(sites)))
