"""The committed results: tables follow from the rows, and the README shows what they say."""

import json
import re
from pathlib import Path

import pytest

from fedcover.paper.definition import PRESETS, UNTRAINED, read_all
from fedcover.paper.set_sizes import cells_of, summarise_cells
from fedcover.paper.store import read_rows
from fedcover.paper.tables import latex, markdown
from fedcover.paper.targets import OF_ROWS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module", params=PRESETS)
def stored(request):
    """A preset and its rows."""
    return request.param, read_rows(RESULTS / request.param / "rows.parquet")


def test_every_table_follows_from_the_stored_rows(stored):
    preset, rows = stored
    for name, definition in read_all().items():
        if definition.kind in UNTRAINED:
            assert (RESULTS / preset / f"{name}.md").is_file()
            continue
        table = OF_ROWS[definition.kind](definition, preset, rows)
        where = RESULTS / preset / name
        assert where.with_suffix(".md").read_text() == markdown(table), name
        assert where.with_suffix(".tex").read_text() == latex(table), name
        assert where.with_suffix(".csv").read_text() == table.data.write_csv(), name
        if definition.figure:
            assert where.with_suffix(".svg").is_file()
            assert where.with_suffix(".png").is_file()


def test_the_grid_is_whole(stored):
    preset, rows = stored
    main = read_all()["main"]
    cells = cells_of(main, preset, rows)
    methods = len(main.presets[preset].methods)
    assert cells.height == methods * len(main.graphs) * len(main.clients) * len(main.levels)
    assert cells["seeds"].unique().to_list() == [5]


def test_the_promise_is_kept_in_every_cell_of_the_default():
    rows = read_rows(RESULTS / "default" / "rows.parquet")
    cells = summarise_cells(rows.filter(quantile="theorem1"))
    assert cells.height > 300
    assert cells["inside"].all(), cells.filter(inside=False)


def test_the_default_recipe_is_below_the_published_gen_in_all_cells():
    rows = read_rows(RESULTS / "default" / "rows.parquet")
    cells = cells_of(read_all()["main"], "default", rows).filter(method="fed+prox+prior+mix")
    assert cells.height == 48
    assert (cells["set_size"] < cells["published"]).all()


def test_commit_and_machine_are_told(stored):
    about = json.loads((RESULTS / stored[0] / "about.json").read_text())
    assert re.fullmatch(r"[0-9a-f]{12}", about["commit"])
    assert about["hardware"]["cores"] >= 1
    assert about["versions"]["torch"].startswith("2.")
    assert set(stored[1]["code"].unique()) == {about["code"]}


def test_the_readme_shows_the_stored_main_table():
    table = [
        line
        for line in (RESULTS / "default" / "main-short.md").read_text().splitlines()
        if line.startswith("|")
    ]
    assert len(table) == 2 + 16
    assert "\n".join(table) in README


def test_the_readme_s_sentences_and_figures_are_the_stored_ones():
    notes = (RESULTS / "default" / "main.md").read_text()
    counted = re.search(r"fed\+prox\+prior\+mix, lac: (at most .*)", notes)
    assert counted
    assert counted[1] in " ".join(README.split())
    kept = re.search(r"- theorem1: (.*)", notes)
    assert kept
    assert kept[1] in " ".join(README.split())
    figures = re.findall(r"!\[[^\]]+\]\((results/[^)]+)\)", README)
    assert len(figures) >= 2
    for figure in figures:
        assert (ROOT / figure).is_file(), figure


def test_the_paper_s_setting_counts_what_is_stored():
    notes = (RESULTS / "paper" / "main.md").read_text()
    page = (ROOT / "docs" / "paper-setting.md").read_text()
    for method in ("loc", "fed", "gen"):
        counted = re.search(
            rf"- {method}, aps-det: at most the published size in (\d+) of \d+ cells, up to 10 % "
            r"above in (\d+), larger in (\d+)",
            notes,
        )
        assert counted, method
        assert f"| {method} | {' | '.join(counted.groups())} |" in page
    below = re.search(r"coverage is below its level in (\d+ of \d+) cells", notes)
    assert below
    assert below[1] in " ".join(page.split())
