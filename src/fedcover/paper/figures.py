"""The paper's figures in matplotlib: lines with error bars, and heat maps."""

import io
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import matplotlib as mpl
import polars as pl
from matplotlib.axes import Axes as Panel
from matplotlib.figure import Figure

from fedcover.graphs.catalogue import DATASETS
from fedcover.paper.definition import Axes, Height

# Okabe and Ito's colours, which colour-blind readers tell apart, with a mark each.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
MARKS = ("o", "s", "^", "D", "v", "P", "X")
HEADINGS = {
    "clients": "clients K",
    "level": "level 1 − α",
    "set_size": "labels in a set",
    "coverage": "coverage − level",
}
DODGE = {"clients": 0.06, "level": 0.006}  # lines that lie on each other are set side by side
PUBLISHED = ", published"
NARROW = 1e-3  # a difference of bands that no eye sees
STYLE: Any = {
    "svg.hashsalt": "fedcover",  # the same figure gives the same file
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "figure.constrained_layout.use": True,
    "legend.frameon": False,
}


def draw(cells: pl.DataFrame, axes: Axes, title: str) -> dict[str, bytes]:
    """The figure as SVG and PNG; ``cells`` are those of a target (see fedcover.paper.set_sizes)."""
    shown = cells.filter(**axes.where) if axes.where else cells
    panels = shown[axes.panels].unique(maintain_order=True).to_list()
    heights: tuple[Height, ...] = (axes.y,)
    if axes.style == "lines" and axes.y == "set_size":
        heights = ("set_size", "coverage")  # a set size never stands without its coverage
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(max(3.1 * len(panels), 4.5), 1.1 + 2.2 * len(heights)))
        grid = figure.subplots(len(heights), len(panels), squeeze=False, sharey="row")
        for row, y in zip(grid, heights, strict=True):
            for panel, value in zip(row, panels, strict=True):
                part = shown.filter(pl.col(axes.panels) == value)
                if axes.style == "heatmap":
                    _heatmap(panel, part, axes)
                else:
                    _lines(panel, part, replace(axes, y=y), shown)
            if axes.style == "lines":
                row[0].set_ylabel(HEADINGS[y])
                if y == "set_size":
                    row[0].set_ylim(bottom=0)
        for panel, value in zip(grid[0], panels, strict=True):
            panel.set_title(_name(axes.panels, value))
        if axes.style == "lines":
            _legend(figure, grid[:, 0])
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)
        return {kind: _bytes(figure, kind) for kind in ("svg", "png")}


def _legend(figure: Figure, panels: Iterable[Panel]) -> None:
    """One entry a name, ours before the published ones."""
    entries: dict[str, Any] = {}
    for panel in panels:
        for handle, name in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(name, handle)
    ours = sorted(entries, key=lambda name: name.endswith(PUBLISHED))
    handles = [entries[name] for name in ours]
    figure.legend(handles, ours, loc="outside lower center", ncols=min(len(ours), 4))


def _bytes(figure: Figure, kind: str) -> bytes:
    file = io.BytesIO()
    # No date and no version, so that the same numbers give the same bytes.
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    figure.savefig(file, format=kind, dpi=160, metadata=metadata)
    return file.getvalue()


def _lines(panel: Panel, part: pl.DataFrame, axes: Axes, everything: pl.DataFrame) -> None:
    places = sorted(everything[axes.x].unique().to_list())
    # Numbers of clients stand side by side, whatever lies between them.
    where = {x: i if axes.x == "clients" else x for i, x in enumerate(places)}
    if axes.y == "coverage":
        _target(panel, part, axes, where)
    series = everything[axes.series].unique(maintain_order=True).to_list()
    for number, value in enumerate(series):
        line = part.filter(pl.col(axes.series) == value).sort(axes.x)
        if line.is_empty():
            continue
        look: Any = {
            "color": COLOURS[number % len(COLOURS)],
            "marker": MARKS[number % len(MARKS)],
            "markersize": 4,
        }
        name = _name(axes.series, value)
        aside = DODGE.get(axes.x, 0.0) * (number - (len(series) - 1) / 2)
        heights = line["coverage"] - line["level"] if axes.y == "coverage" else line[axes.y]
        spread = line[f"{axes.y}_sd"].fill_null(0.0).to_list()
        at = [where[x] + aside for x in line[axes.x]]
        panel.errorbar(at, heights.to_list(), spread, linewidth=1.4, capsize=2, label=name, **look)
        own = pl.col("published_method") == pl.col("method")
        known = line.filter(pl.col("published").is_not_null() & own)
        if axes.y == "set_size" and len(known):
            look |= {"markerfacecolor": "none", "linewidth": 0.9, "linestyle": ":"}
            at = [where[x] + aside for x in known[axes.x]]
            panel.plot(at, known["published"].to_list(), label=name + PUBLISHED, **look)
    panel.set_xlabel(HEADINGS.get(axes.x, axes.x))
    if axes.x == "clients":
        panel.set_xticks(list(where.values()), [str(x) for x in places])
    panel.grid(axis="y", alpha=0.25, linewidth=0.6)


def _target(panel: Panel, part: pl.DataFrame, axes: Axes, where: Mapping[Any, float]) -> None:
    """The promised level, and the theorem's band where there is one."""
    panel.axhline(0.0, color="#777777", linewidth=1, linestyle="--", label="promised")
    promised = part.filter(pl.col("high").is_not_null())
    if promised.is_empty():
        return
    width = pl.col("high") - pl.col("low")
    band = promised.group_by(axes.x).agg(width.max().alias("most"), width.min().alias("least"))
    band = band.sort(axes.x)
    name = "theorem's band"
    if (band["most"] - band["least"]).to_numpy().max() > NARROW:  # it grows with the series
        name += f", {_name(axes.series, promised[axes.series].max())}"
    grey: Any = {"color": "#777777", "alpha": 0.2, "linewidth": 0}
    places = [where[place] for place in band[axes.x]]
    panel.fill_between(places, 0.0, band["most"].to_list(), label=name, **grey)


def _heatmap(panel: Panel, part: pl.DataFrame, axes: Axes) -> None:
    """Rows of series (method and variant), columns of x; in each field the value and coverage."""
    columns = sorted(part[axes.x].unique().to_list())
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in part.iter_rows(named=True):
        found.setdefault((row["method"], row[axes.series], row[axes.x]), row)
    keys = list(dict.fromkeys(key[:2] for key in found))
    blank = {axes.y: float("nan")}
    numbers = [[found.get((*key, x), blank)[axes.y] for x in columns] for key in keys]
    panel.imshow(numbers, cmap="cividis_r", aspect="auto")
    middle = (max(map(max, numbers)) + min(map(min, numbers))) / 2
    for (i, key), (j, x) in product(enumerate(keys), enumerate(columns)):
        if cell := found.get((*key, x)):
            colour = "white" if cell[axes.y] > middle else "black"
            text = f"{cell[axes.y]:.2f}\n({cell['coverage']:.3f})"
            panel.text(j, i, text, ha="center", va="center", color=colour, fontsize=7)
    panel.set_xticks(range(len(columns)), [f"{x:.2f}" for x in columns])
    names = [f"{method}, {variant}" if variant else method for method, variant in keys]
    panel.set_yticks(range(len(keys)), names)
    panel.set_xlabel(HEADINGS.get(axes.x, axes.x))
    panel.spines[:].set_visible(False)


def _name(column: str, value: Any) -> str:
    if column == "clients":
        return f"K = {value}"
    if column == "level":
        return f"level {value:.2f}"
    if column == "dataset":
        return DATASETS[value].title
    return str(value)
