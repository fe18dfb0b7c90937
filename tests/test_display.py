import io
import sys
from itertools import product

import polars as pl
import pytest
from rich.console import Console

from fedcover import Config
from fedcover.display import answers, graphs, run, terminal
from fedcover.graphs.catalogue import GraphStats
from fedcover.graphs.statistics import GraphRow
from fedcover.simulation import Run


def shown(
    coverage,
    quantile="exact",
    *,
    split=None,
    unlabelled=0,
    name="toy",
    methods=("fed",),
    scores=("lac",),
    alphas=(0.1,),
    seeds=2,
    resplits=100,
    clients=3,
    width=110,
    sizes=None,
    epsilon=None,
    privacy=None,
    edges=500,
    **division,
):
    """The summary of cells whose coverage, for two seeds and 100 re-splits, has the error 0.005."""
    numbers = {
        "coverage": coverage,
        "coverage_split": coverage if split is None else split,
        "min_client_coverage": 0.8,
        "accuracy": 0.75,
    }
    numbers |= {"clients": clients, "n_calibration": 99, "n_test": 100}
    numbers |= {"singleton_rate": 0.5, "empty_rate": 0.04}
    spread = {"kind": "all", "coverage_sd": 0.005 * 2**0.5 * 10}
    results, groups = [], []
    for score, method, alpha, seed in product(scores, methods, alphas, range(seeds)):
        key = {"score": score, "quantile": quantile, "method": method, "alpha": alpha, "seed": seed}
        size = sizes[method] if sizes else 2.0
        results.append(key | numbers | {"set_size": size + seed})
        groups.append(key | spread)
    config = Config(
        methods=methods,
        scores=scores,
        quantiles=(quantile,),
        alphas=alphas,
        seeds=seeds,
        resplits=resplits,
        epsilon=epsilon,
        **division,
    )
    stream = io.StringIO()
    info = {
        "graph": {"name": name, "unlabelled": unlabelled, "edges": edges},
        "cut_edges": [20, 39],
        "privacy": privacy,
    }
    tables = (pl.DataFrame(results), pl.DataFrame(groups), pl.DataFrame(), pl.DataFrame())
    finished = Run(config, *tables, info)
    run.summary(Console(file=stream, width=width), finished)
    return stream.getvalue()


def read_tables(text):
    """The levels in every table's heading, and the rows below it, cell by cell."""
    tables = []
    for line in text.splitlines():
        words = line.replace(" ± ", "±").split()
        if words[:3] == ["score", "quantile", "method"]:
            levels = words[3:-1:4]
            beside = [word for level in levels for word in (level, "covers", "split", "empty")]
            assert words[3:] == [*beside, "accuracy"]
            tables.append((levels, []))
        elif words[1:2] == ["exact"]:
            tables[-1][1].append(words)
    return tables


def test_a_row_holds_size_spread_coverage_of_resplits_and_split_empty_sets_and_accuracy():
    text = shown(0.9, split=0.91)
    assert "toy, 3 clients by metis, 5.9% of edges between clients, gcn: labels" in text
    (row,) = (line.split() for line in text.splitlines() if " fed " in line)
    assert row == ["lac", "exact", "fed", "2.50", "±", "0.71", "0.900", "0.910", "0.04", "0.750"]
    assert "over 2 seeds" in text
    assert "100 calibration/test re-splits" in text


METHODS, SCORES = ("loc", "fed", "central"), ("aps", "aps-det")
FIFTEEN = tuple(hundredths / 100 for hundredths in range(1, 16))


@pytest.mark.parametrize(
    ("width", "alphas", "tables"),
    [
        (144, (0.05, 0.1, 0.2), [3]),
        (143, (0.05, 0.1, 0.2), [2, 1]),
        (80, (0.05, 0.1, 0.2), [1, 1, 1]),
        (80, FIFTEEN, [1] * 15),
        (180, FIFTEEN, [4, 4, 4, 3]),
        (30, (0.05, 0.1), [1, 1]),  # too narrow for any level: lines stick out, cells stay whole
    ],
)
def test_levels_that_do_not_fit_go_to_further_tables_with_every_cell_whole(width, alphas, tables):
    text = shown(0.5, split=0.4, methods=METHODS, scores=SCORES, alphas=alphas, width=width)
    found = read_tables(text)
    assert [len(levels) for levels, _ in found] == tables
    assert [level for levels, _ in found for level in levels] == [f"{1 - a:.4g}" for a in alphas]
    keys = [[score, "exact", method] for score in SCORES for method in METHODS]
    for levels, rows in found:
        cells = ["2.50±0.71", "0.500▼", "0.400▼", "0.04"] * len(levels)
        assert rows == [[*key, *cells, "0.750"] for key in keys]
    assert "…" not in text
    if width >= 80:
        assert max(map(len, text.splitlines())) <= width


def test_recipes_are_named_in_full_with_their_methods_model():
    methods = ("fed+prior+mix", "restored+prior", "fedsage++prior+tuned")
    text = shown(0.99, methods=methods, scores=("slac",), alphas=(0.05, 0.1, 0.2), width=80)
    assert text.startswith("toy, 3 clients by metis, 5.9% of edges between clients, gcn, sage:")
    for _, rows in read_tables(text):
        assert [row[:3] for row in rows] == [["slac", "exact", method] for method in methods]
    assert "…" not in text
    assert "restored is a simulation" in text


@pytest.mark.parametrize(("width", "gap"), [(160, 3), (159, 2)])
def test_columns_move_closer_before_levels_part_and_empty_lines_stay(width, gap):
    text = shown(0.99, methods=METHODS, scores=SCORES, alphas=(0.05, 0.1, 0.2), width=width)
    title, above, heading, *_, below, _size, _split = text.splitlines()
    assert title.startswith("toy, 3 clients")
    assert f"quantile{' ' * gap}method" in heading
    assert (above.strip(), below.strip()) == ("", "")


@pytest.mark.parametrize(
    ("division", "said"),
    [
        ({"partition": "louvain"}, "by louvain"),
        ({"partition": "random"}, "at random"),
        ({"partition": "given"}, "as given"),
        ({"partition": "label-skew", "beta": 0.1}, "by label-skew (beta 0.1)"),
    ],
)
def test_the_heading_says_how_the_graph_was_cut_and_what_share_of_edges(division, said):
    start = f"toy, 3 clients {said}"
    assert shown(0.9, **division).startswith(f"{start}, 5.9% of edges between clients, gcn:")
    assert shown(0.9, **division, edges=59).startswith(f"{start}, 50.0% of edges between")
    known = {"cut_edges": "known", "known_share": 0.25}
    assert "5.9% of edges between clients (25% of them known), gcn:" in shown(
        0.9, **division, **known
    )


def test_one_of_a_thing_is_in_the_singular():
    text = shown(0.9, seeds=1, resplits=1, clients=1)
    assert "toy, 1 client by metis, " in text
    assert "Size: mean over 1 seed. Coverage" in text
    assert "1 calibration/test re-split.\n" in text
    assert "±" not in text


@pytest.mark.parametrize("name", ["my[bold]graph[/]", "[/red]", ":warning: x", "back\\"])
def test_a_graphs_name_is_shown_as_it_is_spelt(name):
    assert shown(0.9, name=name).startswith(f"{name}, 3 clients by metis, ")
    stream = io.StringIO()
    row = GraphRow(name, GraphStats(1, 2, 3, 4), f"note on {name}")
    graphs.graph(Console(file=stream, width=100), [row])
    assert stream.getvalue().count(name) == 3


def test_coverage_beyond_three_errors_is_marked_and_the_mark_explained():
    assert "0.884▼" in shown(0.884)
    assert "▼ covers less than its level, by more than 3 standard errors;" in shown(0.884)
    assert "▼" not in shown(0.886)


def test_a_split_that_chance_does_not_explain_is_marked_beside_what_resplits_cover():
    explained = "split: less than chance leaves in 39 of 40 cases."
    for split, mark in ((0.83, "▼"), (0.835, "")):  # of 200 test nodes; 167 are the least
        text = shown(0.9, split=split)
        (row,) = (line.split() for line in text.splitlines() if " fed " in line)
        assert row[6:8] == ["0.900", f"{split:.3f}{mark}"]
        assert (explained in " ".join(text.split())) == bool(mark)


def test_whom_clients_are_counted_by_is_said_where_others_than_test_nodes_are_asked_about():
    said = "Clients are counted by the nodes asked about"
    assert said in shown(0.9, unlabelled=5)
    assert said not in shown(0.9)


def test_only_rules_without_a_guarantee_are_warned_about():
    assert "Only the quantiles 'exact' and 'theorem1' have a guarantee." in shown(0.9, "average")
    assert "guarantee" not in shown(0.9)


def test_progress_is_a_line_for_each_finished_stage(capsys):
    with terminal.progress(quiet=False) as say:
        for done in range(3):
            say("train fed", done, 3)
        assert capsys.readouterr() == ("", "")
        say("train fed", 3, 3)
    assert capsys.readouterr() == ("", "train fed: 3 of 3\n")


def test_quiet_has_no_progress():
    with terminal.progress(quiet=True) as say:
        assert say is None


@pytest.mark.parametrize("done", [1, 3])
def test_progress_is_a_bar_on_a_terminal(monkeypatch, capsys, done):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with terminal.progress(quiet=False) as show:
        show("train fed", 0, 3)
        show("train fed", done, 3)
    out, err = capsys.readouterr()
    assert out == ""
    assert "train fed" in err
    assert f"{done}/3" in err


def test_the_share_of_the_distance_that_gen_closes():
    text = shown(
        0.9, methods=("fed", "gen", "restored"), sizes={"fed": 3, "gen": 2.5, "restored": 1}
    )
    (row,) = [line.split() for line in text.splitlines() if line.split()[-1:] == ["25%"]]
    assert row == ["lac", "exact", "25%"]
    assert "restored is a simulation" in text
    text = shown(
        0.9, methods=("fed", "gen", "restored"), sizes={"fed": 2, "gen": 1.5, "restored": 2}
    )
    assert ["lac", "exact", "–"] in [line.split() for line in text.splitlines()]
    assert "closes" not in shown(0.9, methods=("fed", "gen"))


def test_what_privacy_covers_is_said():
    spent = {"epsilon": 1.98, "delta": 1e-5, "covered": True}
    text = " ".join(shown(0.9, methods=("gen",), epsilon=2.0, privacy=spent).split())
    assert "epsilon = 1.98 at delta = 1e-05" in text
    assert "the prototypes are covered by it. Weights of the GNN and the VGAE are not." in text
    spent["covered"] = False
    text = " ".join(shown(0.9, methods=("gen",), epsilon=2.0, privacy=spent).split())
    assert "made from real nodes, are NOT covered by it" in text
    assert "Differential privacy" not in shown(0.9, methods=("gen",))


def test_a_federation_is_shown_with_the_mean_over_seeds(tmp_path, capsys):
    cases = [("gen", 0.1, 0), ("fed", 0.1, 0), ("gen", 0.2, 0), ("gen", 0.1, 1), ("gen", 0.2, 1)]
    rows = [
        {"method": m, "score": "lac", "quantile": "exact", "alpha": a, "seed": s}
        | {"dataset": "toy", "set_size": 1.0 + s, "coverage": 0.9 - s / 10}
        for m, a, s in [*cases, ("fed", 0.2, 0)]
    ]
    pl.DataFrame(rows).write_csv(tmp_path / "results.csv")
    (tmp_path / "run.json").write_text('{"notes": ["gen: a note"]}')
    answers.federation(Console(width=100), tmp_path)
    said = capsys.readouterr().out
    assert said.rstrip().endswith("gen: a note")
    lines = [line.split() for line in said.splitlines() if "lac" in line]
    assert lines == [
        ["gen", "lac", "exact", *["1.50", "(0.850)"] * 2],
        ["fed", "lac", "exact", *["1.00", "(0.900)"] * 2],
    ]


def test_a_cell_of_gens_grid_without_a_loss_is_not_chosen():
    losses = {(1, 0.1): None, (1, 0.2): 0.5, (2, 0.1): 0.4, (2, 0.2): None}
    grid = [{"prototypes": m, "share": p, "valid_loss": x} for (m, p), x in losses.items()]
    console = Console(file=io.StringIO(), width=100)
    console.print(run._grid("gen", {"grid": [grid], "prototypes": [2], "share": [0.1]}))
    shown = console.file.getvalue().splitlines()
    rows = [words for line in shown if (words := line.split())][-2:]
    assert rows == [["1", "–", "0.500"], ["2", "0.400", "(1)", "–"]]


def test_gens_grid_has_one_row_without_generated_neighbours():
    """Two seeds; the first chose none, the second a cell that shows the same loss as another."""
    losses = {(0, 0.0): 0.3, (1, 0.1): 0.4, (1, 0.2): 0.4, (2, 0.1): 0.5, (2, 0.2): 0.5}
    grid = [{"prototypes": m, "share": p, "valid_loss": x} for (m, p), x in losses.items()]
    grid[0]["cell"] = "none"
    other = [cell | {"valid_loss": 0.4} for cell in grid]
    console = Console(file=io.StringIO(), width=100)
    console.print(
        run._grid("gen", {"grid": [grid, other], "prototypes": [0, 1], "share": [0, 0.2]})
    )
    shown = console.file.getvalue().splitlines()
    lines = [words for line in shown if (words := line.split())]
    head, _, *rows = lines[next(k for k, words in enumerate(lines) if words[0] == "M") :]
    assert head == ["M", "p", "=", "0.1", "p", "=", "0.2"]
    assert rows == [
        ["none", "0.350", "(1)"],
        ["1", "0.400", "0.400", "(1)"],
        ["2", "0.450", "0.450"],
    ]
