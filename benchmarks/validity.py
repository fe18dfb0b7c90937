"""Does the guarantee hold? Coverage of the exact rule against its band on all graphs at hand.

For every graph, K = 3 and 20, `loc`, `fed` and `gen`, every score and level: the mean coverage over
seeds and re-splits must lie in [1 − α, 1 − α + K/(N + K)], up to three standard errors; the upper
end does not apply where scores tie (deterministic APS). `make validity`; exits 1 if a cell fails.
"""

from __future__ import annotations

import sys
import time

import polars as pl

import fedcover
from fedcover.conformal import SCORES, beta_binomial
from fedcover.errors import DataError
from fedcover.report.summary import summarise

GRAPHS = ("cora", "citeseer", "pubmed", "computers")
CLIENTS = (3, 20)


def check(graph_name: str, clients: int) -> pl.DataFrame:
    """One row a cell, with its band and verdict."""
    config = fedcover.Config(
        clients=clients,
        methods=("loc", "fed", "gen"),
        scores=tuple(SCORES),
        seeds=5,
        rounds=60,
        gen={"prototypes": (5,), "shares": (0.02,)},  # one cell: coverage does not hang on it
    )
    finished = fedcover.run(fedcover.load(graph_name), config)
    table = summarise(finished.results, finished.groups, config.resplits)
    n, m = finished.results["n_calibration"][0], finished.results["n_test"][0]
    rows = []
    for row in table.iter_rows(named=True):
        rows.append(
            {
                "graph": graph_name,
                "K": clients,
                "method": row["method"],
                "score": row["score"],
                "level": 1 - row["alpha"],
                "coverage": row["coverage"],
                "se": row["coverage_se"],
                "upper": row["high"],
                "one split's sd": beta_binomial(row["alpha"], n, m)[1],
                "size": row["set_size"],
                "inside": row["status"] == "inside",
            }
        )
    return pl.DataFrame(rows, schema_overrides={"upper": pl.Float64})


def main() -> int:
    began = time.perf_counter()
    tables = []
    for graph in GRAPHS:
        for clients in CLIENTS:
            try:
                tables.append(check(graph, clients))
            except DataError as error:
                print(f"{graph}: skipped: {error}", file=sys.stderr)
                break
            failed = int((~tables[-1]["inside"]).sum())
            print(
                f"{graph}, K = {clients}: {len(tables[-1])} cells, {failed} outside the band "
                f"({time.perf_counter() - began:.0f} s)",
                file=sys.stderr,
                flush=True,
            )
    everything = pl.concat(tables)
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=200, float_precision=4):
        print(everything)
    failed = everything.filter(~pl.col("inside"))
    print(f"{len(everything) - len(failed)} of {len(everything)} cells inside their band.")
    return int(len(failed) > 0)


if __name__ == "__main__":
    sys.exit(main())
