"""``fedcover predict``: sets from a model that a run has kept."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fedcover.cli.options import Data, Quiet, argument, check_out, examples, option, words
from fedcover.errors import UsageError
from fedcover.files import write_whole

if TYPE_CHECKING:
    import polars as pl

EXAMPLES = examples(
    "fedcover predict runs/cora-10 cora",
    "fedcover predict runs/mine my-graph --alpha 0.05 --only test,new --out sets.csv",
    "fedcover predict runs/mine my-grown-graph --recalibrate",
    "fedcover predict runs/mine my-graph --p-values --out sets.csv",
)
P_VALUE = "p:"  # before a label: the column of its p-values in a CSV file
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
    recalibrate: Annotated[
        bool,
        option(
            None,
            "For a graph that has grown: score its calibration nodes anew, so that new and changed "
            "nodes have a promise.",
            "--recalibrate",
        ),
    ] = False,
    p_values: Annotated[
        bool,
        option(None, "A p-value for each label: the set is those above A.", "--p-values"),
    ] = False,
    allow_empty: Annotated[
        bool,
        option(None, "Leave sets empty (default: they get the top label).", "--allow-empty"),
    ] = False,
    data: Data = None,
    quiet: Quiet = False,
) -> None:
    """Make sets for a graph's nodes with a model that a run has kept, at any level."""
    from fedcover.config import recipe_of
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
    if recalibrate:
        predictor = predictor.recalibrated(loaded)
        assert predictor.recalibration is not None
        terminal.notes(predictor.recalibration.notes)
    table = predictor.predict(
        loaded,
        alpha,
        score,
        words("only", only),
        quantile,
        p_values=p_values,
        allow_empty=allow_empty,
    )
    if recipe_of(predictor.method).neighbours and (new := int((table["kind"] == "new").sum())):
        have = "1 new node has" if new == 1 else f"{new:,} new nodes have"
        why = "of neighbours at other clients: these are made only during a run"
        alike = "; it is left out of all nodes alike" if recalibrate else ""
        terminal.notes([f"{have} no sum {why}{alike}."])
    if out is not None:
        buffer = io.BytesIO()  # so that the file is whole or absent
        if out.suffix == ".csv":
            _flat(table, predictor.labels).write_csv(buffer)
        elif out.suffix == ".parquet":
            table.write_parquet(buffer)
        else:
            table.write_json(buffer)
        write_whole(out, buffer.getvalue())
    if not quiet:
        answers.predicted(terminal.console(), predictor, alpha, score, quantile, table)
        if out is not None:
            print(f"\n{out}: {len(table)} nodes")


def _flat(table: "pl.DataFrame", labels: Sequence[str]) -> "pl.DataFrame":
    """Without lists: a set's labels in one text, and a column for the p-values of each label."""
    table = table.with_columns(table["set"].list.join(BETWEEN))
    if "p_values" not in table.columns:
        return table
    each = [table["p_values"].list.get(k).alias(P_VALUE + name) for k, name in enumerate(labels)]
    return table.drop("p_values").with_columns(each)
