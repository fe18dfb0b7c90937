import polars as pl
import pytest

from fedcover.paper import published
from fedcover.paper.comparisons import bytes_table, change_table, paired
from fedcover.paper.definition import read_all
from fedcover.paper.set_sizes import cells_of, cells_table, summarise_cells
from fedcover.paper.tables import Table, escape, latex, markdown


def test_cells_are_means_over_seeds(frame):
    rows = frame(
        {"seed": 0, "set_size": 2.0, "coverage": 0.90, "coverage_sd": 0.03},
        {"seed": 1, "set_size": 4.0, "coverage": 0.92, "coverage_sd": 0.04},
        {"seed": 0, "quantile": "average", "coverage": 0.5},
    )
    exact, average = summarise_cells(rows).rows(named=True)
    assert exact["set_size"] == 3.0
    assert exact["set_size_sd"] == pytest.approx(2**0.5)
    assert exact["coverage"] == pytest.approx(0.91)
    assert exact["coverage_se"] == pytest.approx(0.05 / 10 / 2)
    # The band is 0.9 … 0.9 + 3/1000; 0.91 is above it by less than three errors of 0.0025.
    assert exact["inside"] is True
    assert average["inside"] is None


@pytest.mark.parametrize(("coverage", "mark"), [(0.9, ""), (0.88, "▼"), (0.93, "▲")])
def test_a_broken_promise_is_marked(coverage, mark, frame):
    main = read_all()["main"]
    rows = frame(*({"seed": s, "coverage": coverage} for s in range(5)))
    table = cells_table(main, "default", rows)
    assert table.rows[0][:3] == ["Cora", "3", "fed"]
    assert f"{coverage:.3f}{mark}" in table.rows[0]
    assert "–" in table.rows[0]  # the levels that were not measured


def test_ours_stands_beside_the_published_size(frame):
    main = read_all()["main"]
    ours = {"loc": 2.06, "fed": 3.6, "gen": 3.34, "fed+prox+prior+mix": 1.67}
    rows = frame(*({"method": m, "set_size": s} for m, s in ours.items()))
    table = cells_table(main, "default", rows)
    texts = {line[2]: line[7:11] for line in table.rows}
    assert texts["loc"] == ["2.06", "0.900", "4.12", "−50%"]
    assert texts["fed"] == ["3.60", "0.900", "3.34", "+8%"]
    assert texts["gen"] == ["3.34", "0.900", "3.34", "+0%"]
    assert texts["fed+prox+prior+mix"] == ["1.67", "0.900", "3.34", "−50%"]
    assert (
        "fed, lac: at most the published size in 0 of 1 cells, up to 10 % above in 1, larger in 0."
        in table.notes
    )
    assert "theorem1: coverage in the theorem's band in 4 of 4 cells." in table.notes
    assert table.extra["short"].rows == [["Cora", "3", "–", "–", "–", "1.67", "0.900", "3.34",
                                          "–", "–", "–"]]  # fmt: skip


def test_the_paper_s_aps_is_the_deterministic_one_and_slips_are_not_compared(frame):
    known = read_all()
    paper = {"preset": "paper", "score": "aps-det", "quantile": "average"}
    cells = cells_of(
        known["scores"], "paper", frame(dict(**paper), dict(**paper | {"score": "lac"}))
    )
    table = published.set_sizes().filter(
        table="scores", dataset="cora", clients=3, method="fed", level=0.9
    )
    sizes = dict(table.select("score", "set_size").iter_rows())
    assert cells["published"].to_list() == [sizes["aps"], sizes["lac"]]
    slip = frame(*(dict(**paper, dataset="pubmed", method=m, alpha=0.2) for m in ("fed", "gen")))
    assert cells_of(known["main"], "paper", slip)["published"].is_null().to_list() == [True, False]
    assert len(published.set_sizes().filter(table="main")) == 144 - 8


def test_rows_of_other_targets_are_not_shown(frame):
    main = read_all()["main"]
    rows = frame(
        {}, {"model": "sage"}, {"variant": "ε = 1"}, {"seed": 7}, {"score": "raps"},
        {"quantile": "average"}, {"alpha": 0.3},
    )  # fmt: skip
    cells = cells_of(main, "default", rows)
    assert cells.select("seeds").rows() == [(1,)]


def test_change_in_accuracy_is_paired(frame):
    accuracy = read_all()["accuracy"]
    pairs = {"fedsage": (0.5, 0.8), "fedsage+": (0.55, 0.88), "gen": (0.5, 0.6)}
    rows = frame(
        *(
            {"dataset": g, "clients": k, "method": m, "model": "sage", "seed": s, "accuracy": a}
            for g in accuracy.graphs
            for k in accuracy.clients
            for m, values in pairs.items()
            for s, a in enumerate(values)
        )
    )
    table = change_table(accuracy, "default", rows)
    first = table.rows[0]
    assert first[:6] == ["Cora", "3", "0.650", "0.715", "+10.00 ± 0.00", "+0.34"]
    assert first[6:] == ["0.550", "−12.50 ± 158.83", "+1.55"]  # t(0.975, 1) = 12.706


def test_the_half_width_is_student_s():
    assert paired(pl.Series([1.0, 3.0]))[0] == 2.0
    assert paired(pl.Series([1.0, 3.0]))[1] == pytest.approx(12.7062, rel=1e-4)


def test_bytes_stand_beside_the_formulas(frame):
    communication = read_all()["communication"]
    gcn = 1433 * 64 + 64 + 64 * 7 + 7
    sent = [
        {"kind": "weights", "direction": d, "bytes": 3 * gcn * 100 * 4, "rounds": 100}
        for d in ("up", "down")
    ] + [
        {"kind": "prototypes", "direction": "up", "bytes": 3 * 37 * 1433 * 4, "rounds": 1},
        {"kind": "quantile", "direction": "up", "bytes": 10, "rounds": 1},
        {"kind": "temperature", "direction": "down", "bytes": 3, "rounds": 4},
    ]
    table = bytes_table(
        communication, "default", frame({"method": "gen", "sent": sent, "prototypes": 5})
    )
    by_kind = {line[3]: line[4:] for line in table.rows}
    assert by_kind["weights"] == [f"{2 * 3 * gcn * 100 * 4:,}"] * 2 + ["1.00"]
    assert by_kind["prototypes"] == [f"{3 * 37 * 1433 * 4:,}", f"{2 * 3 * 5 * 1433 * 4:,}", "3.70"]
    assert by_kind["all else"] == ["13", "–", "–"]


@pytest.mark.parametrize(("chosen", "ratio"), [((0, 5), "3.70"), ((0, 0), "–")])
def test_a_seed_without_generated_neighbours_has_no_formula(chosen, ratio, frame):
    """It sent its prototypes all the same."""
    sent = [{"kind": "prototypes", "direction": "up", "bytes": 3 * 37 * 1433 * 4, "rounds": 1}]
    rows = [
        {"method": "gen", "sent": sent, "prototypes": m, "seed": k} for k, m in enumerate(chosen)
    ]
    (line,) = bytes_table(read_all()["communication"], "default", frame(*rows)).rows
    assert line[3:5] == ["prototypes", f"{3 * 37 * 1433 * 4:,}"]
    assert line[-1] == ratio


def test_markdown_and_latex_say_the_same():
    table = Table("A & B", ["x", "size"], [["a|b_c", "1.0 ± 0.1"]], pl.DataFrame(), ["50 % of α."])
    assert markdown(table) == (
        "## A & B\n\n| x | size |\n|---|--:|\n| a\\|b_c | 1.0 ± 0.1 |\n\n- 50 % of α.\n"
    )
    text = latex(table)
    assert r"a$|$b\_c & 1.0 $\pm$ 0.1 \\" in text
    assert "resizebox" not in text
    wide = latex(Table("", ["x"] * 7, [["123,456,789"] * 7], pl.DataFrame()))
    assert wide.count("{") == wide.count("}")
    assert r"\resizebox{\textwidth}{!}{%" in wide
    assert r"\caption{A \& B}" in text
    assert r"50 \% of $\alpha$." in text
    assert escape(r"\{}") == r"\textbackslash{}\{\}"
