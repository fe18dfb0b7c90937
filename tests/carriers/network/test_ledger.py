"""What leaves a site: written down on both sides as it happens, and no data in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from fedcover.errors import DataError
from fedcover.graphs.assemble import feature_matrix
from fedcover.graphs.readers import read_folder
from fedcover.graphs.schema import Schema
from fedcover.graphs.splits import Role
from fedcover.parties import journal
from fedcover.parties.coordinate import Assignment, coordinate
from fedcover.parties.drive import Driver
from fedcover.parties.loopback import Loopback
from fedcover.parties.messages import Order, Reply

from .conftest import members


class Tapped(Loopback):
    """Keeps a copy of every reply."""

    def __init__(self, sites: Path) -> None:
        super().__init__(members(sites))
        self.heard: list[tuple[str, Reply]] = []

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
        sent = sum(a.nbytes for who, r in wire.heard if who == name for a in r.content.values())
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
    for part in wire._members.values():
        name, own = part.name, part._part
        sent = [array for who, r in wire.heard if who == name for array in r.content.values()]
        graph = read_folder(sites / name, schema)
        x = feature_matrix(graph)
        x = x if isinstance(x, np.ndarray) else x.toarray()
        y, edges = graph.y.numpy(), graph.edge_index.numpy()
        assert not any(_rows_in(x, array) for array in sent)
        for column in (y, *(y[own._site.nodes(role)] for role in Role), *edges):
            assert not any(_run_in(column, array) for array in sent)
        order = Order(own.job, "gen/quantile", "quantile", 0)
        for scores in own._scores(order).values():
            true = scores[np.arange(len(y)), y]
            probs = own._probs(order)
            for secret in (true, scores.ravel(), probs.ravel(), own._logits(order).ravel()):
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


def test_a_ledger_that_was_cut_off_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / journal.FILE
    book = journal.Journal(file)
    book.record("j", "ada", "up", ("fed/train", "fit", 3), {"first": np.zeros((2, 3))})
    with file.open("a") as end:
        end.write('{"time": "20')
    (row,) = journal.read(file)
    assert (row["bytes"], row["shape"], row["phase"], row["round"]) == (48, [2, 3], "fed/train", 3)
    book.record("j", "ada", "up", ("fed/train", "fit", 4), {"first": np.zeros((2, 3))})
    assert [row["round"] for row in journal.read(file)] == [3, 4]
    with file.open("a") as end:
        end.write('{"time": 1}\n{"time": 2}\n')
    with pytest.raises(DataError, match="line 3"):
        list(journal.read(file))


def test_totals_sum_rounds() -> None:
    book = journal.Journal()
    for round_ in range(3):
        book.record("j", "ada", "up", ("fed/train", "fit", round_), {"first": np.zeros(4)})
    (total,) = journal.totals(book.entries)
    assert (total["messages"], total["bytes"]) == (3, 96)


def test_orders_before_the_first_reply_are_in_the_ledger_too(
    sites: Path, driver: Callable[..., Driver]
) -> None:
    driver(methods=("fed",), rounds=1).run()
    rows = list(journal.read(sites / "ada" / journal.FILE))
    assert (rows[0]["phase"], rows[0]["direction"]) == ("hello", "down")
