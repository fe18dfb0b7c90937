"""What a site keeps of a job: its prediction sets; and what it tells: counts."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedcover import conformal
from fedcover.files import write_whole
from fedcover.graphs.labels import spelt_sets
from fedcover.graphs.splits import Role
from fedcover.parties.job import Job
from fedcover.parties.site import Site
from fedcover.tables import KEY


def tally(sets: NDArray[np.bool_], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Nodes, covered ones, labels in all sets, sets with one label, sets with none."""
    sizes = sets.sum(axis=1)
    covered = conformal.covered(sets, labels).sum()
    return np.array([len(sets), covered, sizes.sum(), (sizes == 1).sum(), (sizes == 0).sum()])


def write_sets(
    folder: Path,
    name: str,
    method: str,
    site: Site,
    job: Job,
    sets: Sequence[NDArray[np.bool_]],
) -> None:
    """One Parquet file a method, with the columns of a run folder's ``sets.parquet``."""
    graph, test = site.graph, site.nodes(Role.TEST)
    labels = np.array(graph.label_names, dtype=object)
    common = pl.DataFrame(
        {
            "node": pl.Series(np.asarray(graph.node_ids)[test]).cast(pl.String),
            "client": [name] * len(test),
            "label": labels[site.y[test]].tolist(),
        }
    )
    frames = []
    for (score, rule, alpha), one in zip(job.cases, sets, strict=True):
        key = {"method": method, "score": score, "quantile": rule, "alpha": alpha}
        frames.append(
            common.with_columns(
                **{column: pl.lit(value) for column, value in key.items()},
                seed=pl.lit(job.seed, pl.Int64),
                set=spelt_sets(one, graph.label_names),
                size=pl.Series(one.sum(axis=1)),
                covered=pl.Series(conformal.covered(one, site.y[test])),
            ).select(*KEY, "node", "client", "label", "set", "size", "covered")
        )
    buffer = io.BytesIO()
    pl.concat(frames).write_parquet(buffer)
    write_whole(folder / f"sets-{method}.parquet", buffer.getvalue())
