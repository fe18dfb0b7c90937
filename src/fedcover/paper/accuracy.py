"""What a method changes in accuracy."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import ArrayLike
from scipy.stats import t as student

from fedcover.graphs.catalogue import DATASETS
from fedcover.paper import published
from fedcover.paper.definition import Definition
from fedcover.paper.grid import seeds_of_target
from fedcover.paper.tables import Table, signed


def change_table(definition: Definition, preset: str, rows: pl.DataFrame) -> Table:
    """Change in accuracy against a baseline in per cent, paired over seeds, and the paper's."""
    selection = definition.presets[preset]
    baseline = definition.baseline or selection.methods[0]
    others = [method for method in selection.methods if method != baseline]
    headings = ["graph", "K", f"{baseline}, accuracy"]
    headings += [name for method in others for name in (method, "change in %", "paper")]
    own = seeds_of_target(definition, preset, rows).sort("seed", maintain_order=True)
    body, tidy = [], []
    for graph in definition.graphs:
        for clients in definition.clients:
            here = own.filter(dataset=graph, clients=clients)
            base = here.filter(method=baseline)["accuracy"].to_numpy()
            line = [DATASETS[graph].title, str(clients), f"{base.mean():.3f}"]
            for method in others:
                accuracy = here.filter(method=method)["accuracy"].to_numpy()
                mean, half = paired(100 * (accuracy / base - 1))
                paper = published.accuracy_changes().get((graph, clients, method))
                change = f"{signed(mean)} ± {half:.2f}"
                line += [f"{accuracy.mean():.3f}", change, "–" if paper is None else signed(paper)]
                tidy.append(
                    {
                        "dataset": graph,
                        "clients": clients,
                        "method": method,
                        "accuracy": accuracy.mean(),
                        "baseline": base.mean(),
                        "change_percent": mean,
                        "half_width": half,
                        "published": paper,
                    }
                )
            body.append(line)
    data = pl.DataFrame(tidy).with_columns(pl.selectors.float().round(5))
    note = (
        f"Change of the accuracy relative to {baseline}, paired over {definition.seeds} seeds, "
        "± half of its 95 % interval."
    )
    return Table(f"{definition.title} ({preset})", headings, body, data, [note])


def paired(differences: ArrayLike) -> tuple[float, float]:
    """Mean of paired differences over the seeds, and half of its 95 % interval."""
    found = np.asarray(differences, dtype=np.float64)
    n, mean = len(found), float(found.mean())
    if n < 2:
        return mean, float("nan")
    return mean, float(found.std(ddof=1) / n**0.5 * student.ppf(0.975, n - 1))
