"""Draw the README's figure from a run folder: `python scripts/readme_figure.py RUN_DIR`.

The run: `fedcover run cora --scores lac --quantiles exact,average
--alphas 0.02,0.05,0.1,0.15,0.2,0.3 --out RUN_DIR`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import polars as pl

from fedcover.config import BEST
from fedcover.conformal import coverage_band
from fedcover.report.summary import summarise

TARGET = Path(__file__).parent.parent / "docs" / "figures" / "cora.svg"
RULES = {"exact": ("#1a7f5a", "exact: four rounds of counts"), "average": ("#c4472f", "averaging")}
SHOWN = (0.05, 0.1, 0.2)
METHODS = {
    "loc": ("#8a8f98", "each client alone"),
    "fed": ("#d9a441", "FedAvg"),
    BEST: ("#1a7f5a", "the default recipe"),
    "central": ("#2f5fc4", "one owner of all edges"),
}


def main(folder: Path) -> None:
    """Read the run folder, draw both panels, write the SVG."""
    results = pl.read_csv(folder / "results.csv")
    info = json.loads((folder / "run.json").read_text())
    table = summarise(results, pl.read_csv(folder / "groups.csv"), info["config"]["resplits"])
    clients, n = results["clients"][0], results["n_calibration"][0]
    plt.rcParams.update(
        {"font.size": 10, "svg.hashsalt": "fedcover", "axes.spines.top": False,
         "axes.spines.right": False}
    )  # fmt: skip
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.4), layout="constrained")
    table = table.filter(pl.col("score") == "lac")
    _coverage(left, table.filter(pl.col("method") == BEST), n, clients)
    _sizes(right, table.filter(pl.col("quantile") == "exact"))
    figure.suptitle(
        f"Cora cut into {clients} clients, {info['config']['seeds']} seeds, score LAC",
        x=0.01, ha="left", fontsize=11,
    )  # fmt: skip
    figure.savefig(TARGET, metadata={"Date": None}, facecolor="white")
    print(TARGET.name)


def _coverage(axes: plt.Axes, table: pl.DataFrame, n: int, clients: int) -> None:
    levels = sorted(1 - a for a in table["alpha"].unique())
    above = [coverage_band(1 - level, n, clients)[1] - level for level in levels]
    axes.fill_between(levels, 0, above, color="#1a7f5a", alpha=0.2, lw=0, label="promised band")
    axes.axhline(0, color="#555", lw=0.8, ls=":")
    for rule, (colour, name) in RULES.items():
        own = table.filter(pl.col("quantile") == rule).sort("alpha", descending=True)
        level = 1 - own["alpha"]
        axes.errorbar(
            level, own["coverage"] - level, 3 * own["coverage_se"],
            fmt="o-", color=colour, lw=1.6, ms=4, label=name,
        )  # fmt: skip
    axes.set(
        xlabel="promised coverage 1 − α",
        ylabel="measured − promised",
        title="the default recipe: coverage",
    )
    axes.legend(frameon=False, fontsize=8)


def _sizes(axes: plt.Axes, table: pl.DataFrame) -> None:
    shown = table.filter(pl.col("alpha").is_in(SHOWN)).sort("alpha", descending=True)
    for offset, (method, (colour, name)) in enumerate(METHODS.items()):
        own = shown.filter(pl.col("method") == method)
        places = [i + 0.22 * (offset - 1.5) for i in range(len(own))]
        axes.bar(places, own["set_size"], 0.2, yerr=own["set_size_sd"], color=colour, label=name)
        for x, row in zip(places, own.iter_rows(named=True), strict=True):
            axes.text(x, 0.08, f"{row['coverage']:.3f}", ha="center", fontsize=6.5, color="white")
    axes.set_xticks(range(len(SHOWN)), [f"{1 - a:.2f}" for a in sorted(SHOWN, reverse=True)])
    axes.set(
        xlabel="promised coverage (measured: in the bars)",
        ylabel="labels in a set",
        title="Set size, exact quantile",
    )
    axes.legend(frameon=False, fontsize=8, loc="upper left")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
