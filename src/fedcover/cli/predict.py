"""``fedcover predict``: sets from a model that a run has kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcover.cli.options import Data, Quiet, examples, words

EXAMPLES = examples(
    "fedcover predict runs/cora-10 cora",
    "fedcover predict runs/mine my-graph --alpha 0.05 --only test,new --out sets.csv",
)


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or its model/METHOD.")],
    graph: Annotated[str, typer.Argument(metavar="GRAPH", help="As for run.")],
    alpha: Annotated[float, typer.Option(metavar="A", help="The level is 1 − A.")] = 0.1,
    method: Annotated[
        str | None, typer.Option(metavar="M", help="Which of the run's methods.")
    ] = None,
    score: Annotated[
        str | None, typer.Option(metavar="S", help="Which of the run's scores (default: first).")
    ] = None,
    quantile: Annotated[
        str | None,
        typer.Option(metavar="Q", help="Which of the run's quantile rules (default: first)."),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help="Nodes of these kinds: test, unlabelled, new, changed, train, valid, calib.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write them: .csv, .parquet or .json.")
    ] = None,
    missing: Annotated[
        str | None,
        typer.Option(
            metavar="M", help="Empty features: refuse or impute (default: as in the run)."
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The column of groups (default: as in the run)."),
    ] = None,
    data: Data = None,
    quiet: Quiet = False,
) -> None:
    """Make sets for a graph's nodes with a model that a run has kept, at any level."""
    from fedcover import display
    from fedcover.predictor import load_predictor
    from fedcover.predictor.write import check_kind, check_labels, write_sets

    if out is not None:
        check_kind(out)
    predictor = load_predictor(run, method)
    if out is not None:
        check_labels(predictor.labels, out)
    loaded = predictor.read(graph, data, missing=missing, group=group)
    table = predictor.predict(loaded, alpha, score, words("only", only), quantile)
    if out is not None:
        write_sets(table, out)
    if not quiet:
        found = predictor.thresholds(alpha, score, quantile)
        asked = predictor.chosen("score", score), predictor.chosen("quantile", quantile)
        display.predicted(display.console(), predictor, alpha, asked, found, table)
        if out is not None:
            print(f"\n{out}: {len(table)} nodes")
