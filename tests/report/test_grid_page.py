import json
import re

import polars as pl
import pytest

from fedcover.errors import DataError
from fedcover.report.page import write_grid_page
from fedcover.tables import LATER

PUBLISHED = pl.DataFrame(
    {
        "dataset": ["cora"],
        "clients": [3],
        "method": ["gen"],
        "score": ["aps"],
        "level": [0.9],
        "set_size": [3.21],
        "set_size_sd": [0.04],
    }
)


@pytest.fixture
def write(grid_rows, tmp_path):
    def make(rows=grid_rows, published=PUBLISHED, notes=("a note </script>",)):
        target = tmp_path / "deep" / "grid.html"
        page = write_grid_page(rows, target, title="A <grid>", published=published, notes=notes)
        text = page.read_text(encoding="utf-8")
        return text, json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])

    return make


def test_a_cell_is_the_mean_over_its_seeds(write):
    text, shown = write()
    assert "<title>A &lt;grid&gt;" in text
    assert len(shown["cells"]["method"]) == 2 * 2 * 3 * 2
    cell = {name: values[0] for name, values in shown["cells"].items()}
    assert (cell["dataset"], cell["clients"], cell["method"], cell["alpha"]) == (
        "cora",
        3,
        "fed",
        "0.1",
    )
    assert cell["set_size"] == pytest.approx(1.95)
    assert cell["set_size_sd"] == pytest.approx(0.1 / 2**0.5, abs=1e-5)
    assert cell["coverage_se"] == pytest.approx((2 * 0.01**2 / 100) ** 0.5 / 2, abs=1e-5)
    assert cell["status"] == "inside"
    assert shown["published"][0]["set_size"] == 3.21
    assert shown["notes"] == ["a note </script>"]
    assert shown["groups"]["client"][0][2] == [0.901, 0.891, 0.881] * 2
    assert shown["groups"]["degree"][0][0] == []


def test_the_cards_and_the_best_method_of_each_setting(write):
    _, shown = write()
    smallest, held, worst = shown["verdicts"][""]
    assert smallest["answer"] == "fed+prior"  # central is a mark
    assert "in 8 of 8 settings" in smallest["text"]
    assert held["answer"] == "In 24 of 24 cells"
    assert worst["answer"].startswith("Client 9 on ")
    assert set(shown["best"].values()) == {"fed+prior"}
    assert "default||pubmed|10|lac|exact|0.2" in shown["best"]


def test_the_same_rows_give_the_same_bytes(write):
    assert write()[0] == write()[0]


def test_rows_need_their_columns(write, grid_rows):
    with pytest.raises(DataError, match="rows lacks the column groups"):
        write(grid_rows.drop("groups"))
    with pytest.raises(DataError, match="published lacks the column level"):
        write(published=PUBLISHED.drop("level"))
    with pytest.raises(DataError, match="rows is empty"):
        write(grid_rows.head(0))


def test_rows_of_an_earlier_version_have_a_page_without_its_later_columns(write, grid_rows):
    _, shown = write(grid_rows.drop(LATER))
    assert [shown["cells"][name] for name in LATER] == [[None] * 24] * 3
    assert shown["cells"]["status"] == ["inside"] * 24  # by re-splits
    _, shown = write()
    of_a_cell = [shown["cells"][name][0] for name in LATER]
    assert of_a_cell == [pytest.approx(0.901), 0.95, 0.7]


def test_rows_without_groups_still_have_a_page(write, grid_rows):
    empty = grid_rows.with_columns(pl.col("groups").list.head(0))
    _, shown = write(empty, published=None)
    assert shown["worst"] == [None] * 24
    assert shown["verdicts"][""][2]["answer"] == "Not recorded"
