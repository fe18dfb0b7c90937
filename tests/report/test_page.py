import json
import re
import shutil

import polars as pl
import pytest

from fedcover.errors import DataError
from fedcover.report.explorer import ABSENT
from fedcover.report.page import write_grid_page, write_run_page

# As in the fixture toy_folder.
LABELS = ["</script><script>alert(1)</script>", "b & \"quotes\" 'too'", "<!-- c \u2028 -->"]


def payload_of(page):
    text = page.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


@pytest.fixture
def copy(toy_folder, tmp_path):
    return shutil.copytree(toy_folder, tmp_path / "run")


def test_numbers_are_those_of_results_and_groups(toy_folder):
    shown = payload_of(toy_folder / "report.html")
    cells = pl.DataFrame(shown["cells"], strict=False).with_columns(
        pl.col("alpha").cast(pl.Float64)
    )
    key = ["method", "score", "quantile", "alpha"]
    results = pl.read_csv(toy_folder / "results.csv")
    means = results.group_by(key).agg(pl.col("coverage", "set_size", "accuracy").mean())
    both = cells.join(means, on=key, suffix="_stored")
    assert len(both) == len(cells) == 24
    for name in ("coverage", "set_size", "accuracy"):
        assert (both[name] - both[f"{name}_stored"]).abs().max() <= 0.5e-5 + 1e-12
    groups = pl.read_csv(toy_folder / "groups.csv")
    for kind in ("client", "class", "position", "degree", "size"):
        for i, cell in enumerate(cells.select(key).iter_rows(named=True)):
            stored = groups.filter(pl.col("kind") == kind, **cell)
            names, n, coverage, size = shown["groups"][kind][i][:4]
            if kind == "client":
                expected = stored
                assert shown["groups"][kind][i][4] == stored["seed"].to_list()
            else:
                expected = stored.group_by("group", maintain_order=True).agg(
                    pl.col("n_test", "coverage", "set_size").mean()
                )
            assert [shown["names"][k] for k in names] == expected["group"].to_list()
            assert n == pytest.approx(expected["n_test"].to_list(), abs=0.051)
            assert coverage == pytest.approx(expected["coverage"].to_list(), abs=0.51e-4)
            assert size == pytest.approx(expected["set_size"].to_list(), abs=0.51e-3)


def test_sets_are_those_of_the_first_seed(toy_folder):
    shown = payload_of(toy_folder / "report.html")["explorer"]
    stored = pl.read_parquet(toy_folder / "sets.parquet").filter(seed=0)
    key = ["method", "score", "quantile", "alpha"]
    assert len(shown["sets"]) == 24
    for cell, table in stored.partition_by(key, as_dict=True).items():
        which = shown["sets"]["|".join(map(str, cell))]
        found = {
            shown["ids"][node]: [LABELS[label] for label in shown["patterns"][pattern]]
            for node, pattern in zip(shown["explained"], which, strict=True)
        }
        assert found == dict(table.select("node", "set").iter_rows())


def test_nothing_is_asked_of_a_network(toy_folder, tmp_path, grid_rows):
    grid = write_grid_page(grid_rows, tmp_path / "grid.html", title="A grid")
    for page in (toy_folder / "report.html", grid):
        text = page.read_text(encoding="utf-8")
        links = re.findall(r"""(?:src|href|action|data|poster)\s*=\s*["']([^"']*)""", text)
        assert not [link for link in links if re.match(r"(https?:)?//", link)]
        styles = "".join(re.findall(r"<style>(.*?)</style>", text, re.DOTALL))
        assert ".card" in styles
        assert not re.search(r"@import|url\(", styles)
        assert "default-src 'none'" in text
        assert "connect-src" not in text
        assert not re.search(r"<(?:img|iframe|object|embed|video|audio)\b", text)


def test_no_name_becomes_markup(toy_folder):
    text = (toy_folder / "report.html").read_text(encoding="utf-8")
    assert "<title>&lt;toy&gt;, 3 clients" in text
    assert "alert(1)</script>" not in text
    assert "<img" not in text
    assert "\u2028" not in text.partition('id="data">')[2].partition("</script>")[0]
    shown = payload_of(toy_folder / "report.html")
    assert shown["labels"] == LABELS
    assert shown["explorer"]["ids"][:2] == ["</script><b>", '"><img src=x onerror=alert(1)>']


def test_the_same_folder_gives_the_same_bytes_and_nothing_beside(copy):
    before = (copy / "report.html").read_bytes()
    (copy / "report.html").unlink()
    assert write_run_page(copy) == copy / "report.html"
    assert (copy / "report.html").read_bytes() == before
    assert [path.name for path in copy.parent.iterdir()] == ["run"]


def test_the_share_of_edges_between_clients_is_the_mean_over_seeds(copy):
    info = json.loads((copy / "run.json").read_text())
    shares = [cut / info["graph"]["edges"] for cut in info["cut_edges"]]
    assert shares[0] != shares[1]
    shown = payload_of(copy / "report.html")["cut_share"]
    assert shown == pytest.approx(sum(shares) / 2, abs=1e-5)
    del info["cut_edges"]  # as over a network, where nobody knows
    (copy / "run.json").write_text(json.dumps(info))
    assert payload_of(write_run_page(copy))["cut_share"] is None


def test_cora_is_small_enough(cora_folder):
    assert (cora_folder / "report.html").stat().st_size < 2_000_000


def test_an_old_folder_has_a_page_that_says_what_is_missing(copy):
    (copy / "scores.parquet").unlink()
    shown = payload_of(write_run_page(copy))
    assert shown["explorer"] is None
    assert shown["absent"] == ABSENT
    assert len(shown["cells"]["method"]) == 24
    (copy / "ledger.parquet").unlink()
    assert payload_of(write_run_page(copy))["traffic"] is None


def test_bytes_are_the_ledgers(toy_folder):
    shown = payload_of(toy_folder / "report.html")["traffic"]
    info = json.loads((toy_folder / "run.json").read_text())
    assert set(shown["kinds"]) == {"loc", "fed"}  # central sends nothing
    for method, by_seed in info["bytes_by_kind"].items():
        for kind, up, down in shown["kinds"].get(method, []):
            for way, seen in (("up", up), ("down", down)):
                mean = sum(seed[kind][way] for seed in by_seed) / len(by_seed)
                assert seen == pytest.approx(mean, abs=0.5)
    assert [name for name, _, _ in shown["clients"]["fed"]] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda run: (run / "run.json").unlink(), "is not a run folder: it holds no run.json"),
        (lambda run: (run / "run.json").write_text("{}"), "is not a run folder"),
        (lambda run: (run / "results.csv").unlink(), r"results\.csv is missing"),
        (lambda run: (run / "groups.csv").write_text("a,b\n1,2\n"), r"groups\.csv cannot be read"),
        (lambda run: (run / "nodes.parquet").write_bytes(b"x"), r"nodes\.parquet cannot be read"),
        (lambda run: (run / "sets.parquet").unlink(), r"sets\.parquet"),
        (lambda run: shutil.rmtree(run), "does not exist; give a run folder"),
    ],
)
def test_what_is_no_run_is_refused_in_one_sentence_and_left_alone(copy, spoil, sentence):
    spoil(copy)
    before = (copy / "report.html").read_bytes() if copy.exists() else None
    with pytest.raises(DataError, match=sentence) as caught:
        write_run_page(copy)
    assert "\n" not in str(caught.value)
    if before is not None:
        assert (copy / "report.html").read_bytes() == before
        assert [path.name for path in copy.parent.iterdir()] == ["run"]


def test_results_without_rows_are_refused(copy):
    table = pl.read_csv(copy / "results.csv").head(0)
    table.write_csv(copy / "results.csv")
    with pytest.raises(DataError, match=r"results\.csv has no rows"):
        write_run_page(copy)


def test_a_page_that_cannot_be_put_in_its_place_leaves_the_earlier_one(copy, monkeypatch):
    before = (copy / "report.html").read_bytes()

    def fail(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(DataError, match=r"report\.html cannot be written: No space left"):
        write_run_page(copy)
    assert (copy / "report.html").read_bytes() == before
    assert [path.name for path in copy.parent.iterdir()] == ["run"]


@pytest.mark.parametrize(("folder", "status"), [("run", 0), ("nowhere", 1)])
def test_the_command_writes_the_page_or_says_why_not(copy, monkeypatch, capsys, folder, status):
    from fedcover.cli import main

    monkeypatch.chdir(copy.parent)
    monkeypatch.setattr("sys.argv", ["fedcover", "report", folder])
    with pytest.raises(SystemExit) as left:
        main()
    out, err = capsys.readouterr()
    assert left.value.code == status
    assert out == ("run/report.html\n" if status == 0 else "")
    assert err == (
        ""
        if status == 0
        else "fedcover: nowhere does not exist; give a run folder, as fedcover run writes it.\n"
    )
