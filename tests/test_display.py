import io
import sys

import polars as pl
import pytest
from rich.console import Console

from fedcover import Config, display
from fedcover.experiment import Run


def shown(coverage, quantile="exact"):
    """The summary of one cell with two seeds at level 0.9, whose coverage has the error 0.005."""
    key = {"score": "lac", "quantile": quantile, "method": "fed", "alpha": 0.1}
    numbers = {"coverage": coverage, "min_client_coverage": 0.8, "accuracy": 0.75, "clients": 3}
    results = pl.DataFrame([key | numbers | {"seed": s, "set_size": 2.0 + s} for s in (0, 1)])
    spread = {"kind": "all", "coverage_sd": 0.005 * 2**0.5 * 10}
    groups = pl.DataFrame([key | spread | {"seed": s} for s in (0, 1)])
    config = Config(
        methods=("fed",), scores=("lac",), quantiles=(quantile,), alphas=(0.1,), seeds=2
    )
    stream = io.StringIO()
    finished = Run(config, results, groups, pl.DataFrame(), {"graph": {"name": "toy"}})
    display.summary(Console(file=stream, width=110), finished)
    return stream.getvalue()


def test_a_row_holds_size_spread_coverage_and_accuracy():
    text = shown(0.9)
    assert "toy, 3 clients, gcn" in text
    (row,) = (line.split() for line in text.splitlines() if " fed " in line)
    assert row == ["lac", "exact", "fed", "2.50", "±", "0.71", "0.900", "0.750"]
    assert "over 2 seeds" in text
    assert "100 calibration/test re-splits" in text


def test_coverage_beyond_three_errors_is_marked_and_the_mark_explained():
    assert "0.884▼" in shown(0.884)
    assert "▼ covers less than its level, by more than 3 standard errors." in shown(0.884)
    assert "▼" not in shown(0.886)


def test_only_rules_without_a_guarantee_are_warned_about():
    assert "Only the quantile 'exact' has a guarantee." in shown(0.9, "average")
    assert "guarantee" not in shown(0.9)


def test_progress_is_a_line_for_each_finished_stage(capsys):
    with display.progress(quiet=False) as say:
        for done in range(3):
            say("train fed", done, 3)
        assert capsys.readouterr() == ("", "")
        say("train fed", 3, 3)
    assert capsys.readouterr() == ("", "train fed: 3 of 3\n")


def test_quiet_has_no_progress():
    with display.progress(quiet=True) as say:
        assert say is None


@pytest.mark.parametrize("done", [1, 3])
def test_progress_is_a_bar_on_a_terminal(monkeypatch, capsys, done):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with display.progress(quiet=False) as show:
        show("train fed", 0, 3)
        show("train fed", done, 3)
    out, err = capsys.readouterr()
    assert out == ""
    assert "train fed" in err
    assert f"{done}/3" in err
