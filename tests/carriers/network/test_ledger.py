"""What leaves a site: written down on both sides as it happens, and no data in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedcover.carriers.network import journal
from fedcover.carriers.network.coordinate import coordinate
from fedcover.carriers.network.coordinator import Coordinator
from fedcover.carriers.network.job import Assignment
from fedcover.carriers.network.member import InProcess
from fedcover.carriers.network.messages import Order, Place, Reply
from fedcover.errors import DataError
from fedcover.graphs.assemble import feature_matrix
from fedcover.graphs.readers import read_folder
from fedcover.graphs.schema import Schema
from fedcover.graphs.splits import Role
from fedcover.party import calibration
from fedcover.tables import LEDGER

from .conftest import members


class Tapped(InProcess):
    """Keeps a copy of every reply."""

    def __init__(self, sites: Path) -> None:
        super().__init__(members(sites))
        self.heard: list[tuple[str, Reply]] = []

    def sent_by(self, name: str) -> list[np.ndarray]:
        replies = [reply for who, reply in self.heard if who == name]
        return [array for reply in replies for own in reply.contents for array in own.values()]

    def greet(self, order: Order, sites: int, seconds: float) -> dict[str, Reply]:
        found = super().greet(order, sites, seconds)
        self.heard += list(found.items())
        return found

    def exchange(self, orders: Mapping[str, Order], seconds: float) -> Iterator[tuple[str, Reply]]:
        for pair in super().exchange(orders, seconds):
            self.heard.append(pair)
            yield pair


@pytest.fixture
def tapped(sites: Path, assignment: Callable[..., Assignment]) -> tuple[Tapped, Assignment]:
    wire, job = Tapped(sites), assignment(methods=("gen",), scores=("lac", "aps", "raps"))
    coordinate(job, wire)
    return wire, job


def test_both_sides_have_the_same_ledger(sites: Path, tapped: tuple[Tapped, Assignment]) -> None:
    _, job = tapped

    def lines(path: Path, site: str) -> list[tuple]:
        return sorted(
            tuple(str(row[key]) for key in journal.FIELDS[1:])
            for row in journal.read(path)
            if row["site"] == site
        )

    for name in ("ada", "bob", "cleo"):
        own = lines(sites / name / journal.FILE, name)
        assert own == lines(job.out / journal.FILE, name)
        assert len(own) > 50


def test_the_ledger_has_every_byte_that_left(
    sites: Path, tapped: tuple[Tapped, Assignment]
) -> None:
    wire, _ = tapped
    for name in ("ada", "bob", "cleo"):
        sent = sum(array.nbytes for array in wire.sent_by(name))
        rows = list(journal.read(sites / name / journal.FILE))
        assert sum(row["bytes"] for row in rows if row["direction"] == "up") == sent


def test_no_feature_row_label_edge_or_score_is_among_what_left(
    sites: Path, schema: Schema, tapped: tuple[Tapped, Assignment]
) -> None:
    """Everything that a site sent in a Gen run, searched for everything that it holds.

    The bytes of a row, a score, or a column of labels or edges would stand in an array that was
    sent, whatever its shape; arrays are searched in every type that the site's data could have.
    """
    wire, _ = tapped
    for member in wire._members.values():
        name, own = member.name, member._under_way.party(0)
        sent = wire.sent_by(name)
        graph = read_folder(sites / name, schema)
        x = feature_matrix(graph)
        x = x if isinstance(x, np.ndarray) else x.toarray()
        y, edges = graph.y.numpy(), graph.edge_index.numpy()
        assert not any(_rows_in(x, array) for array in sent)
        for column in (y, *(y[own.data.nodes(role)] for role in Role), *edges):
            assert not any(_run_in(column, array) for array in sent)
        for score in ("lac", "aps", "raps"):
            scores = calibration.scores(own, "gen", score)
            true = scores[np.arange(len(y)), y]
            probs, logits = calibration.probs(own, "gen"), calibration.logits(own, "gen")
            for secret in (true, scores.ravel(), probs.ravel(), logits.ravel()):
                assert not any(_values_in(secret, array) for array in sent)


def test_the_search_finds_what_is_there() -> None:
    """Were a row, a score or a column of labels sent, the test above would fail."""
    x = np.eye(4, dtype=np.float32)[:, [0, 1, 2, 3, 0]]
    assert _rows_in(x, np.array([[9, 9, 9, 9, 9], [1, 0, 0, 0, 1]], np.float64))
    assert _values_in(np.array([0.123456], np.float32), np.array([7, 0.123456], np.float32))
    labels = np.array([2, 0, 1, 1, 2, 0] * 2)
    assert _run_in(labels, np.array([5, *labels, 5], np.int8))


def _rows_in(rows: np.ndarray, sent: np.ndarray) -> bool:
    """Whether one of these rows, not all zero, stands in what was sent."""
    width = rows.shape[1]
    flat = sent.astype(np.float64).ravel()
    if flat.size < width:
        return False
    windows = np.lib.stride_tricks.sliding_window_view(flat, width)
    mine = {row.tobytes() for row in rows[rows.any(axis=1)].astype(np.float64)}
    return any(window.tobytes() in mine for window in windows)


def _run_in(column: np.ndarray, sent: np.ndarray) -> bool:
    """Whether a whole column was sent; a few labels alone may stand in counts by chance."""
    flat = sent.astype(np.float64).ravel()
    return column.size >= 12 and column.astype(np.float64).tobytes() in flat.tobytes()


def _values_in(secret: np.ndarray, sent: np.ndarray) -> bool:
    """Whether a single value (not a plain one, as 0 or 1) was sent in the site's precision."""
    values = np.unique(secret.astype(np.float32))
    values = values[(values != np.round(values)) & np.isfinite(values)]
    return bool(np.isin(sent.astype(np.float32).ravel(), values).any())


def at(round_: int) -> list[tuple[Place, dict[str, np.ndarray]]]:
    """The weights of one round."""
    return [(Place(0, "fed/shared", "train", round_), {"first": np.zeros((2, 3))})]


def test_a_ledger_that_was_cut_off_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / journal.FILE
    journal.record(file, "j", "ada", "up", at(3))
    with file.open("a") as end:
        end.write('{"time": "20')
    (row,) = journal.read(file)
    assert (row["bytes"], row["shape"], row["part"], row["round"]) == (48, [2, 3], "fed/shared", 3)
    journal.record(file, "j", "ada", "up", at(4))
    assert [row["round"] for row in journal.read(file)] == [3, 4]
    with file.open("a") as end:
        end.write('{"time": 1}\n{"time": 2}\n')
    with pytest.raises(DataError, match="line 3"):
        list(journal.read(file))


def test_totals_sum_rounds(tmp_path: Path) -> None:
    file = tmp_path / journal.FILE
    for round_ in range(3):
        journal.record(file, "j", "ada", "up", at(round_))
    (total,) = journal.totals(journal.read(file))
    assert (total["messages"], total["bytes"]) == (3, 144)


def test_orders_before_the_first_reply_are_in_the_ledger_too(
    sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    coordinator(methods=("fed",), rounds=1).run()
    rows = list(journal.read(sites / "ada" / journal.FILE))
    assert (rows[0]["verb"], rows[0]["direction"]) == ("hello", "down")


def test_a_run_folder_s_ledger_has_every_byte_under_its_method(
    sites: Path, assignment: Callable[..., Assignment]
) -> None:
    """In the columns of a simulation; the methods of one job share what both need."""
    job = assignment(methods=("fed", "fed+tuned"), seeds=2)
    coordinate(job, InProcess(members(sites)))
    table = pl.read_parquet(job.out / "ledger.parquet")
    assert table.columns == list(LEDGER)
    assert set(table["client"]) == {"ada", "bob", "cleo"}
    first = table.filter(pl.col("method") == "fed")
    rest = table.filter(pl.col("method") != "fed", ~pl.col("part").is_in(set(first["part"])))
    once = pl.concat([first, rest])
    sent = sum(row["bytes"] for row in journal.read(job.out / journal.FILE))
    assert (once["bytes"] * once["rounds"]).sum() == sent
    both = table.filter(pl.col("part") == "fed/shared").group_by("method").agg(pl.len())
    assert set(both["method"]) == {"fed", "fed+tuned"}
    assert both["len"].n_unique() == 1


# The chain.


def kept(path: Path, keep: Callable[[int, str], str | None]) -> Path:
    """A ledger's copy; ``keep`` is given a line's number and the line."""
    copy = path.with_name("copy.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    found = [keep(number, line) for number, line in enumerate(lines, 1)]
    copy.write_text("".join(line for line in found if line is not None))
    return copy


@pytest.fixture
def done(sites: Path, assignment: Callable[..., Assignment]) -> tuple[Path, Path]:
    """Of a job that is over, a site's ledger and the coordinator's."""
    job = assignment(methods=("fed",), rounds=2)
    coordinate(job, InProcess(members(sites)))
    return sites / "ada" / journal.FILE, job.out / journal.FILE


def test_ledgers_that_nobody_touched_are_whole(done: tuple[Path, Path], sites: Path) -> None:
    site, leader = done
    others = [sites / name / journal.FILE for name in ("ada", "bob", "cleo")]
    assert journal.verify(site) == journal.verify(site, [leader]) == len(site.open().readlines())
    assert journal.verify(leader, others) == len(leader.open().readlines())
    assert site.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("at", [1, 2, 30])
def test_a_line_that_was_taken_out_or_changed_is_found(at: int, done: tuple[Path, Path]) -> None:
    without = kept(done[0], lambda number, line: None if number == at else line)
    with pytest.raises(DataError, match=f"line {at}: it was changed, or a line before it"):
        journal.verify(without)
    changed = kept(done[0], lambda n, line: line.replace('"ada"', '"bob"') if n == at else line)
    with pytest.raises(DataError, match=f"line {at}: it was changed, or a line before it"):
        journal.verify(changed)


def test_an_end_that_is_missing_is_found_beside_the_other_side(done: tuple[Path, Path]) -> None:
    """By itself a chain that ends early is whole."""
    site, leader = done
    count = len(site.open().readlines())
    for lost in (3, 40):
        early = kept(site, lambda number, line, n=count - lost: line if number <= n else None)
        assert journal.verify(early) == count - lost
        with pytest.raises(DataError, match="lines are missing at its end, or all were rewritten"):
            journal.verify(early, [leader])


@pytest.mark.parametrize("side", [0, 1])
def test_a_chain_that_was_made_anew_is_found_beside_the_other_side(
    side: int, done: tuple[Path, Path]
) -> None:
    mine, theirs = done[side], done[1 - side]
    rows = [{k: v for k, v in row.items() if k != journal.CHAIN} for row in journal.read(mine)]
    forged = mine.with_name("forged.jsonl")
    journal._append(forged, [row | {"bytes": 1} if n == 5 else row for n, row in enumerate(rows)])
    assert journal.verify(forged) == len(rows)
    with pytest.raises(DataError, match="lines are missing at its end, or all were rewritten"):
        journal.verify(forged, [theirs])


def test_after_the_end_of_a_job_a_site_answers_nothing_more_of_it(
    sites: Path, assignment: Callable[..., Assignment]
) -> None:
    class Curious(InProcess):
        last: Order

        def exchange(
            self, orders: Mapping[str, Order], seconds: float
        ) -> Iterator[tuple[str, Reply]]:
            order = orders["ada"]
            if order.places[0].verb == "train":
                self.last = order
            yield from super().exchange(orders, seconds)

    wire = Curious(members(sites))
    coordinate(assignment(methods=("fed",), rounds=2), wire)
    for member in (wire._members["ada"], members(sites)[0]):  # the process itself, and a new one
        assert member.answer(wire.last).problem == (
            "the job is over; this site answers no further orders for it."
        )


def test_a_site_that_is_silent_in_the_end_is_named_and_the_result_stands(
    sites: Path, assignment: Callable[..., Assignment]
) -> None:
    class Silent(InProcess):
        def exchange(
            self, orders: Mapping[str, Order], seconds: float
        ) -> Iterator[tuple[str, Reply]]:
            for name, reply in super().exchange(orders, seconds):
                if reply.places[0].verb != "close" or name != "bob":
                    yield name, reply

    out = coordinate(assignment(methods=("fed",), rounds=2), Silent(members(sites)))
    notes = json.loads((out / "run.json").read_text())["notes"]
    assert "bob did not report the hash of its ledger when the job ended." in notes
