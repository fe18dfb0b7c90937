"""A run's sets and choices, as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedcover.config import METHODS, Config, recipe_of
from fedcover.conformal import RULES
from fedcover.display.terminal import full_width, number, table, with_spread
from fedcover.plans import NO_NEIGHBOURS
from fedcover.report.summary import (
    STANDARD_ERRORS,
    closed_share,
    cut_share,
    is_rejected,
    promised,
    split_below,
    summarise,
)
from fedcover.simulation.run import Run
from fedcover.tables import SPLIT


def summary(console: Console, finished: Run) -> None:
    """Methods × levels for each score and quantile rule: set size, its spread, and coverage.

    Levels that do not fit beside each other come in several tables, one below the other.
    """
    config = finished.config
    rows = summarise(finished.results, finished.groups, config.resplits, finished.info)
    methods = [METHODS[recipe_of(name).base] for name in config.methods]
    models = ", ".join(dict.fromkeys(method.model or config.model for method in methods))
    title = f"{finished.info['graph']['name']}, {_division(finished)}, {models}"
    # A Text is printed as it stands: no markup and no emoji code in a graph's name is obeyed.
    console.print(Text(f"{title}: labels in a set, and their coverage", style="table.title"))
    tables = _fitting(console, rows, config)
    if not tables[0].show_edge:
        console.print()
    for shown in tables:
        console.print(shown, soft_wrap=True)
        if not shown.show_edge:  # an edge is an empty line by itself
            console.print()
    spread = "mean ± sd" if config.seeds > 1 else "mean"
    size = f"Size: {spread} over {_count(config.seeds, 'seed')}."
    measured = finished.results["n_test"][0] > 0
    if measured:
        resplits = _count(config.resplits, "calibration/test re-split")
        which = _SPLITS[finished.info.get("split") == "given"]
        lines = [
            f"{size} Coverage: mean over seeds and {resplits}.",
            f"Split: coverage in the {which}. Empty: share of sets without a label.",
        ]
        if finished.info["graph"]["unlabelled"] or config.client_shares is not None:
            lines.append("Clients are counted by the nodes asked about, here and in results.csv.")
    else:
        lines = [size, promised(finished.info, "the level", config.quantiles)]
    if rows["below"].any() or any(map(split_below, rows.iter_rows(named=True))):
        lines.append(
            f"▼ covers less than its level, by more than {STANDARD_ERRORS} standard errors; split: "
            "less than chance leaves in 39 of 40 cases."
        )
    lines += _unlike(rows)
    if not all(RULES[rule].guarantee for rule in config.quantiles):
        lines.append("Only the quantiles 'exact' and 'theorem1' have a guarantee.")
    if config.calibrate != "pooled":
        lines.append(
            f"Calibrated by {config.calibrate}: each has its own threshold"
            f"{f'; coverage by {config.calibrate} is in groups.csv' if measured else ''}."
        )
    if any(method.simulation for method in methods):
        lines.append("restored is a simulation: its clients are given what no party has.")
    console.print("\n".join(lines), highlight=False, soft_wrap=not measured)
    if {"fed", "gen", "restored"} <= set(config.methods):
        console.print()
        console.print(_closed(closed_share(finished.results), config), soft_wrap=True)
    for name, chosen in finished.info.get("chosen_on_validation", {}).items():
        grids = chosen.get("grid")
        if grids and "share" in grids[0][0]:  # Gen's, not the weight decay of central
            console.print()
            console.print(_grid(name, chosen), soft_wrap=True)
    if finished.info.get("privacy"):
        console.print(_privacy_sentence(finished.info["privacy"]), highlight=False)


def _division(finished: Run) -> str:
    """Into how many clients the graph was cut, how, what share of its edges that took, and how many
    of these both ends know, where it is not all or none."""
    config = finished.config
    skew = f"by label-skew (beta {config.beta:g})"
    ways = {"given": "as given", "random": "at random", "label-skew": skew}
    way = ways.get(config.partition, f"by {config.partition}")
    clients = _count(finished.results["clients"][0], "client")
    known = f" ({config.known_share:.0%} of them known)" if config.known_share < 1 else ""
    return f"{clients} {way}, {cut_share(finished.info):.1%} of edges between clients{known}"


_SPLITS = ("splits that were calibrated", "split that you gave, which all seeds share")


def _unlike(rows: pl.DataFrame) -> list[str]:
    """Where test nodes are not like calibration nodes, a line for each method and score."""
    tests = rows.unique(["method", "score"], maintain_order=True).iter_rows(named=True)
    return [
        f"No promise for {one['method']}, {one['score']}: test nodes differ from calibration nodes "
        f"(permutation test, p = {one['p_value']:.3g}), most of all at client {one['party']} "
        f"(p = {one['party_p_value']:.3g})."
        for one in tests
        if is_rejected(one)
    ]


def _grid(name: str, chosen: Mapping[str, Sequence[Any]]) -> Table:
    """Gen's validation loss over M and p, and how many seeds chose each cell.

    Without generated neighbours there is one cell, which has a row of its own.
    """
    keep = "prototypes", "share", "valid_loss"
    cells = pl.DataFrame(
        [{key: cell[key] for key in keep} for grid in chosen["grid"] for cell in grid],
        schema_overrides={"valid_loss": pl.Float64},
        infer_schema_length=None,
    )
    seeds = list(zip(chosen["prototypes"], chosen["share"], strict=True))

    def text(m: int, share: float) -> str:
        loss = cells.filter(prototypes=m, share=share).select(pl.col("valid_loss").mean()).item()
        shown = "–" if loss is None else f"{loss:.3f}"
        count = seeds.count((m, share))
        return f"{shown} ({count})" if count else f"{shown}    "

    linked = cells.filter(pl.col("share") > 0)
    shares = linked["share"].unique().sort().to_list()
    lines = []
    if len(linked) < len(cells):
        lines.append(["none", text(*NO_NEIGHBOURS), *[""] * (len(shares) - 1)])
    for m in linked["prototypes"].unique().sort():
        lines.append([str(m), *(text(m, share) for share in shares)])
    title = f"{name}: validation loss by M and p, and in brackets the seeds that chose the cell"
    headings = ["M", *(f"p = {share:g}" for share in shares)]
    return table(headings, lines, title=title, words=(), no_wrap=True)


def _closed(shares: pl.DataFrame, config: Config) -> Table:
    """What part of the distance from fed to restored gen closes."""
    lines = [
        [*key, *("–" if share is None else f"{share:.0%}" for share in cells["closed"])]
        for key, cells in shares.group_by("score", "quantile", maintain_order=True)
    ]
    title = "of the distance from fed to restored, gen closes (–: hardly any)"
    headings = ["score", "quantile", *(f"{1 - alpha:.4g}" for alpha in config.alphas)]
    return table(headings, lines, title=title, words=(0, 1), no_wrap=True)


def _privacy_sentence(spent: dict[str, Any]) -> str:
    are = " are" if spent["covered"] else ", made from real nodes, are NOT"
    return (
        f"Differential privacy: epsilon = {spent['epsilon']:.3g} at delta = {spent['delta']:g} for "
        f"each client's VAE; the prototypes{are} covered by it. Weights of the GNN and "
        "the VGAE are not."
    )


def _fitting(console: Console, rows: pl.DataFrame, config: Config) -> list[Table]:
    """One table if the console is wide enough, else closer columns and as few tables as fit."""
    alphas = config.alphas
    whole = _levels(rows, config.methods, alphas)
    if full_width(console, whole) <= console.width:
        return [whole]
    tables: list[Table] = []
    while alphas:
        counts = range(1, len(alphas) + 1)
        tried = [_levels(rows, config.methods, alphas[:count], close=True) for count in counts]
        widths = [full_width(console, one) for one in tried]
        last = max(1, sum(width <= console.width for width in widths))  # one, however narrow
        tried[last - 1].width = widths[last - 1]  # where one level is too wide, cells stay whole
        tables.append(tried[last - 1])
        alphas = alphas[last:]
    return tables


_BESIDE = ("covers", "split", "empty")  # what stands beside a size


def _levels(
    rows: pl.DataFrame, methods: Sequence[str], alphas: Sequence[float], close: bool = False
) -> Table:
    """The table of some levels; no cell of it is ever wrapped."""
    headings = ["score", "quantile", "method"]
    headings += [text for alpha in alphas for text in (f"{1 - alpha:.4g}", *_BESIDE)]
    words = [i for i, heading in enumerate(headings) if i < 3 or heading in _BESIDE]
    shown = table([*headings, "accuracy"], [], words=words, no_wrap=True)
    if close:
        shown.padding, shown.pad_edge, shown.show_edge = (0, 1, 0, 0), False, False
    for (score, rule), block in rows.group_by("score", "quantile", maintain_order=True):
        for method in methods:
            own = block.filter(pl.col("method") == method)
            cells = []
            for alpha in alphas:
                row = own.row(by_predicate=pl.col("alpha") == alpha, named=True)
                covers = f"{number(row['coverage'], 3)}{'▼' if row['below'] else ''}"
                split = f"{number(row[SPLIT], 3)}{'▼' if split_below(row) else ''}"
                size = with_spread(row["set_size"], row["set_size_sd"])
                cells += [size, covers, split, number(row["empty_rate"], 2)]
            shown.add_row(str(score), str(rule), method, *cells, f"{own['accuracy'][0]:.3f}")
        shown.add_section()
    return shown


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
