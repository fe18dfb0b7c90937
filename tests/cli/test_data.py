"""What ``fedcover data`` shows, and what fedcover says without a command."""

import re

import pytest

from fedcover import __version__


def test_data_list_names_every_graph(fedcover):
    status, out, err = fedcover("data", "list")
    assert (status, err) == (0, "")
    for name in ("cora", "citeseer", "pubmed", "computers", "photo", "cs", "physics"):
        assert re.search(rf"^│ {name} +│", out, re.MULTILINE)
    assert "2,485 | 2,485" in out
    assert "to fetch" in out


def test_data_show_puts_the_published_numbers_beside(fedcover):
    status, out, err = fedcover("data", "show", "cora")
    assert (status, err) == (0, "")
    assert [re.findall(r"[\w,]+", line) for line in out.splitlines() if "7 " in line] == [
        ["whole", "graph", "2,708", "10,556", "1,433", "7"],
        ["largest", "component", "2,485", "10,138", "1,433", "7"],
        ["paper", "2,485", "10,138", "2,485", "7"],
    ]


def test_data_show_takes_an_own_graph(fedcover):
    status, out, _ = fedcover("data", "show", "own")
    assert status == 0
    assert re.search(r"whole graph +│ +24 │ +96 │ +2 │ +2 │", out)


def test_data_cuts_puts_the_papers_missing_edges_beside(fedcover):
    status, out, err = fedcover("data", "cuts", "cora", "--seeds", "1")
    assert (status, err) == (0, "")
    rows = [re.findall(r"[\w,.]+", line) for line in out.splitlines() if "10,138" in line]
    assert [(row[2], row[-2]) for row in rows] == [("5", "604"), ("10", "806"), ("20", "1,230")]


def test_data_fetch_needs_nothing_for_cora(fedcover, here):
    assert fedcover("data", "fetch", "cora") == (0, "cora is part of the package.\n", "")
    assert [path.name for path in here.iterdir()] == ["own"]


def test_version(fedcover):
    assert fedcover("--version") == (0, f"fedcover {__version__}\n", "")


@pytest.mark.parametrize("arguments", [[], ["data"]])
def test_alone_it_prints_help_and_means_wrong_usage(fedcover, arguments):
    status, out, err = fedcover(*arguments)
    assert (status, err) == (2, "")
    assert out.count("Usage:") == 1
    assert ("run" if not arguments else "fetch") in out


@pytest.mark.parametrize("arguments", [["--help"], ["run", "-h"], ["data", "show", "--help"]])
def test_help(fedcover, arguments):
    status, out, err = fedcover(*arguments)
    assert (status, err) == (0, "")
    assert "Usage: fedcover" in out
