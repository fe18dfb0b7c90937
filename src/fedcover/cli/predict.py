"""``fedcover predict``: sets from a model that a run has kept."""

import io
from pathlib import Path
from typing import Annotated

from fedcover.cli.options import Data, Quiet, argument, check_out, examples, option, words
from fedcover.errors import UsageError
from fedcover.files import write_whole

EXAMPLES = examples(
    "fedcover predict runs/cora-10 cora",
    "fedcover predict runs/mine my-graph --alpha 0.05 --only test,new --out sets.csv",
)
BETWEEN = "; "  # the labels of a set in a CSV file, which has no lists


def predict(
    run: Annotated[Path, argument("RUN", "A run folder, or its model/METHOD.")],
    graph: Annotated[str, argument("GRAPH", "As for run.")],
    alpha: Annotated[float, option("A", "The level is 1 − A.")] = 0.1,
    method: Annotated[str | None, option("M", "Which of the run's methods.")] = None,
    score: Annotated[str | None, option("S", "Which of its scores (default: first).")] = None,
    quantile: Annotated[str | None, option("Q", "A quantile rule of it (default: first).")] = None,
    only: Annotated[
        str | None,
        option("A,B,…", "Only these nodes: test, unlabelled, new, changed, train, valid, calib."),
    ] = None,
    out: Annotated[Path | None, option("FILE", "Write them: .csv, .parquet or .json.")] = None,
    missing: Annotated[str | None, option("M", "Empty features (default: as in the run).")] = None,
    group: Annotated[str | None, option("COLUMN", "Groups' column (default: the run's).")] = None,
    data: Data = None,
    quiet: Quiet = False,
) -> None:
    """Make sets for a graph's nodes with a model that a run has kept, at any level."""
    from fedcover.display import answers, terminal
    from fedcover.predictor import load_predictor

    if out is not None:
        check_out(out, ".csv", ".parquet", ".json")
    predictor = load_predictor(run, method)
    unclear = [label for label in predictor.labels if BETWEEN.strip() in label]
    if out is not None and out.suffix == ".csv" and unclear:
        raise UsageError(
            f"the label {unclear[0]!r} has a semicolon, which stands between labels in a CSV file; "
            f"write {out.stem}.parquet or {out.stem}.json."
        )
    loaded = predictor.read(graph, data, missing=missing, group=group)
    table = predictor.predict(loaded, alpha, score, words("only", only), quantile)
    if out is not None:
        buffer = io.BytesIO()  # so that the file is whole or absent
        if out.suffix == ".csv":
            table.with_columns(table["set"].list.join(BETWEEN)).write_csv(buffer)
        elif out.suffix == ".parquet":
            table.write_parquet(buffer)
        else:
            table.write_json(buffer)
        write_whole(out, buffer.getvalue())
    if not quiet:
        answers.predicted(terminal.console(), predictor, alpha, score, quantile, table)
        if out is not None:
            print(f"\n{out}: {len(table)} nodes")
