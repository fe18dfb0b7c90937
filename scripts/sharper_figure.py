"""Draw docs/figures/sharper.svg from the rows of benchmarks/sharper.py.

    python scripts/sharper_figure.py docs/data/sharper.csv

One panel a graph: labels in a set at level 0.90 against the number of clients.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import polars as pl

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "figures" / "sharper.svg"
PUBLISHED = ROOT / "paper" / "published" / "set_sizes.csv"
GRAPHS = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed", "computers": "Computers"}
ALPHA = 0.1
LINES = {  # method, score: colour, name
    ("fed", "aps-det"): ("#c4472f", "FedAvg, deterministic APS"),
    ("plain fed", "lac"): ("#d9a441", "FedAvg, LAC"),
    ("fed+prox+prior+mix", "lac"): ("#1a7f5a", "+prox +prior +mix, LAC (the default)"),
    ("central", "lac"): ("#2f5fc4", "one owner of all edges, LAC"),
}


def main(rows: Path) -> None:
    """Read the rows, draw the panels, write the SVG."""
    table = pl.read_csv(rows).filter(pl.col("alpha") == ALPHA)
    plt.rcParams.update(
        {"font.size": 10, "svg.hashsalt": "fedcover", "axes.spines.top": False,
         "axes.spines.right": False}
    )  # fmt: skip
    figure, panels = plt.subplots(1, 4, figsize=(11, 3.4), layout="constrained")
    for axes, (graph, title) in zip(panels, GRAPHS.items(), strict=True):
        clients, sizes = _published(title)
        axes.plot(clients, sizes, "s--", color="#8a8f98", ms=4, label="the paper's Gen")
        for (method, score), (colour, name) in LINES.items():
            own = (
                table.filter(dataset=graph, method=method, score=score)
                .group_by("clients")
                .agg(pl.col("set_size").mean(), pl.col("set_size").std().alias("sd"))
                .sort("clients")
            )
            axes.errorbar(
                own["clients"], own["set_size"], own["sd"],
                fmt="o-", color=colour, lw=1.6, ms=4, label=name,
            )  # fmt: skip
        axes.set(title=title, xlabel="clients", ylim=(0, None), xticks=clients)
    panels[0].set_ylabel("labels in a set at 0.90")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    figure.savefig(TARGET, metadata={"Date": None}, facecolor="white")
    print(TARGET.name)


def _published(dataset: str) -> tuple[list[int], list[float]]:
    with PUBLISHED.open() as file:
        rows = [
            (int(row["clients"]), float(row["set_size"]))
            for row in csv.DictReader(file)
            if (row["table"], row["dataset"], row["method"]) == ("main", dataset, "gen")
            and float(row["confidence"]) == 1 - ALPHA
        ]
    clients, sizes = zip(*sorted(rows), strict=True)
    return list(clients), list(sizes)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
