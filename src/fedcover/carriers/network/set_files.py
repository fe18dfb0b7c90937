"""What a site keeps of a job: its prediction sets, in the columns of a run folder."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import polars as pl
from torch_geometric.data import Data

from fedcover import conformal
from fedcover.algorithm.calibrate import cases_of
from fedcover.files import write_whole
from fedcover.graphs.labels import spelt_sets
from fedcover.graphs.splits import Role
from fedcover.party.party import Party
from fedcover.tables import KEY


def write_sets(folder: Path, graph: Data, party: Party, method: str) -> None:
    """Write the sets of a method: one Parquet file for all seeds, to which this one is added."""
    data, test = party.data, party.data.nodes(Role.TEST)
    labels, y = np.array(graph.label_names, dtype=object), data.y[test]
    common = pl.DataFrame(
        {
            "node": pl.Series(np.asarray(graph.node_ids)[test]).cast(pl.String),
            "client": [data.name] * len(test),
            "label": labels[y].tolist(),
        }
    )
    frames = []
    for (score, rule, alpha), one in zip(cases_of(party.config), party.sets[method], strict=True):
        key = {"method": method, "score": score, "quantile": rule, "alpha": alpha}
        frames.append(
            common.with_columns(
                **{column: pl.lit(value) for column, value in key.items()},
                seed=pl.lit(data.seed, pl.Int64),
                set=spelt_sets(one, graph.label_names),
                size=pl.Series(one.sum(axis=1)),
                covered=pl.Series(conformal.covered(one, y)),
            ).select(*KEY, "node", "client", "label", "set", "size", "covered")
        )
    file = folder / f"sets-{method}.parquet"
    if file.exists():
        others = pl.read_parquet(file).filter(pl.col("seed") != data.seed)
        frames.insert(0, others)
    buffer = io.BytesIO()
    pl.concat(frames).sort("seed", maintain_order=True).write_parquet(buffer)
    write_whole(file, buffer.getvalue())
