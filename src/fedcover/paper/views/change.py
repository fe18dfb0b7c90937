"""What a method changes in accuracy."""

from __future__ import annotations

import polars as pl
from scipy.stats import t as student

from fedcover.graphs.catalogue import DATASETS
from fedcover.paper import published
from fedcover.paper.definition import Definition
from fedcover.paper.tables import Table
from fedcover.paper.views.select import seeds_of_target


def change_table(definition: Definition, preset: str, rows: pl.DataFrame) -> Table:
    """Change in accuracy against a baseline in per cent, paired over seeds, and the paper's."""
    selection = definition.presets[preset]
    baseline = definition.baseline or selection.methods[0]
    others = [method for method in selection.methods if method != baseline]
    own = seeds_of_target(definition, preset, rows)
    headings = ["graph", "K", f"{baseline}, accuracy"]
    for method in others:
        headings += [method, "change in %", "paper"]
    body, tidy = [], []
    for graph in definition.graphs:
        for clients in definition.clients:
            here = own.filter(dataset=graph, clients=clients)
            base = here.filter(method=baseline).sort("seed")["accuracy"]
            line = [DATASETS[graph].title, str(clients), f"{mean_of(base):.3f}"]
            for method in others:
                accuracy = here.filter(method=method).sort("seed")["accuracy"]
                mean, half = paired(100 * (accuracy / base - 1))
                paper = published.accuracy_changes().get((graph, clients, method))
                text = f"{mean:+.2f} ± {half:.2f}".replace("-", "−")
                there = "–" if paper is None else f"{paper:+.2f}".replace("-", "−")
                line += [f"{mean_of(accuracy):.3f}", text, there]
                tidy.append(
                    {
                        "dataset": graph,
                        "clients": clients,
                        "method": method,
                        "accuracy": mean_of(accuracy),
                        "baseline": mean_of(base),
                        "change_percent": mean,
                        "half_width": half,
                        "published": paper,
                    }
                )
            body.append(line)
    data = pl.DataFrame(tidy).with_columns(pl.selectors.float().round(5))
    notes = [
        f"Change of the accuracy relative to {baseline}, paired over {definition.seeds} seeds, "
        "± half of its 95 % interval."
    ]
    return Table(f"{definition.title} ({preset})", headings, body, data, notes, words=1)


def mean_of(numbers: pl.Series) -> float:
    """Their mean as a number."""
    return float(numbers.to_numpy().mean())


def paired(differences: pl.Series) -> tuple[float, float]:
    """Mean of paired differences over the seeds, and half of its 95 % interval."""
    n, mean = len(differences), mean_of(differences)
    if n < 2:
        return mean, float("nan")
    spread = float(differences.to_numpy().std(ddof=1))
    return mean, spread / n**0.5 * float(student.ppf(0.975, n - 1))
