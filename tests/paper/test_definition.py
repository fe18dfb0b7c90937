import pytest

from fedcover.errors import DataError, UsageError
from fedcover.paper.definition import chosen, folder, narrowed, read, read_all

TARGETS = (
    "datasets", "missing-edges", "main", "clients", "coverage", "accuracy", "scores",
    "scores-coverage", "quantiles", "privacy", "communication",
)  # fmt: skip
SMALL = """
title = "T"
kind = "cells"
graphs = ["cora"]
clients = [2]
levels = [0.9]
[paper]
methods = ["fed"]
scores = ["lac"]
quantiles = ["theorem1"]
[default]
methods = ["fed"]
scores = ["lac"]
quantiles = ["theorem1"]
"""


def test_every_table_and_figure_of_the_paper_has_a_definition():
    assert tuple(read_all()) == TARGETS
    assert {path.stem for path in folder().glob("*.toml")} == set(TARGETS)


def test_the_main_table_is_the_papers():
    main = read_all()["main"]
    assert main.graphs == ("cora", "citeseer", "pubmed", "computers")
    assert main.clients == (3, 5, 10, 20)
    assert main.alphas == (0.05, 0.1, 0.2)
    assert main.seeds == 5
    paper = main.presets["paper"]
    assert (paper.methods, paper.scores) == (("loc", "fed", "gen"), ("aps-det",))
    assert paper.quantiles == ("average",)


def test_all_means_every_target():
    known = read_all()
    assert [d.target for d in chosen("all", known)] == list(TARGETS)
    assert [d.target for d in chosen("main", known)] == ["main"]
    named = r"target is 'mian'; it must be one of datasets, .*, all, verify, redraw\."
    with pytest.raises(UsageError, match=named):
        chosen("mian", known)


def test_fewer_graphs_and_seeds():
    known = narrowed(read_all(), ["cora"], 2)
    assert known["main"].graphs == ("cora",)
    assert known["main"].seeds == 2
    assert "missing-edges" in known
    assert list(narrowed(read_all(), ["pubmed"], None)) == ["datasets", "main"]
    with pytest.raises(UsageError, match="graphs has 'kora'"):
        narrowed(read_all(), ["kora"], None)


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ('kind = "cells"', 'kind = "cell"', "kind has 'cell'; it must be one of statistics"),
        ('graphs = ["cora"]', 'graphs = ["kora"]', "graphs has 'kora'"),
        ("clients = [2]", "", "the entry clients is missing"),
        ("clients = [2]", "client = [2]", "there is no entry called client"),
        ("levels = [0.9]", "levels = [1.9]", "alphas has -0.9"),
        ('[default]\nmethods = ["fed"]', '[default]\nmethods = ["fet"]', "'fet'"),
        ('title = "T"', "title = ", "not a TOML file"),
        ('title = "T"', "title = 3", "title is 3; it must be text"),
        ("clients = [2]", "clients = 2", "clients is 2; it must be a list, each a whole number"),
        ("clients = [2]", 'clients = ["2"]', "clients is ['2']"),
        ("clients = [2]", "clients = []", "clients is []"),
        ("clients = [2]", "clients = [0]", "clients is 0; it must be a whole number of 1 or more"),
        ("levels = [0.9]", "levels = 0.9", "levels is 0.9; it must be a list, each a number"),
        ("levels = [0.9]", "levels = [0.9]\nseeds = 0", "seeds is 0"),
        ('graphs = ["cora"]', 'graphs = "cora"', "graphs is 'cora'; it must be a list"),
        ("levels = [0.9]", 'levels = [0.9]\npublished = "x"', "published has 'x'"),
        ("levels = [0.9]", 'levels = [0.9]\nbaseline = "loc"', "baseline has 'loc'"),
        ("[default]", "[settings]\nclients = 3\n[default]", "settings has 'clients'"),
        ('[paper]\nmethods = ["fed"]', "[paper]\nmethods = 3", "paper.methods is 3"),
        ("[default]", '[default]\nagainst = { loc = "gen" }', "default.against has 'loc'"),
        ("[default]", "[default]\nvariants = [3]", "default.variants is [3]"),
        ("[default]", '[default]\nvariants = [{ name = "a" }]', "default.variants.methods is"),
        ("[default]", '[figure]\nx = "level"\ny = "accuracy"\nseries = "score"\n'
         'panels = "level"\n[default]', "figure.y has 'accuracy'"),
        ("[default]", "[settings]\nround = 3\n[default]", "no setting called 'round'"),
        ("[default]", '[figure]\nx = "a"\ny = "coverage"\nseries = "score"\npanels = "level"\n'
         "[default]", "figure.x has 'a'"),
    ],
)  # fmt: skip
def test_a_bad_definition_is_refused_with_its_file_and_place(tmp_path, before, after, sentence):
    path = tmp_path / "bad.toml"
    assert before in SMALL
    path.write_text(SMALL.replace(before, after))
    with pytest.raises(DataError) as caught:
        read(path)
    assert sentence in str(caught.value)
    assert "bad.toml" in str(caught.value)


def test_a_folder_without_definitions_is_said(tmp_path):
    with pytest.raises(DataError, match="holds no definition"):
        read_all(tmp_path)
