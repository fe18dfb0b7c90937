"""Which rows of the grid a target shows, in the order in which its definition lists them."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from fedcover.config import METHODS, recipe_of
from fedcover.paper.definition import Definition, Selection, Variant

MODEL = "gcn"


def rows_of_target(definition: Definition, preset: str, rows: pl.DataFrame) -> pl.DataFrame:
    """The target's rows; the grid may hold more scores, rules, levels and seeds of a model."""
    selection = definition.presets[preset]
    wanted = rows.filter(
        pl.col("dataset").is_in(definition.graphs),
        pl.col("clients").is_in(definition.clients),
        pl.col("score").is_in(selection.scores),
        pl.col("quantile").is_in(selection.quantiles),
        pl.col("alpha").is_in(definition.alphas),
        pl.col("seed") < definition.seeds,
        _shown(definition, selection),
    )
    return _ordered(wanted, definition, selection)


def seeds_of_target(definition: Definition, preset: str, rows: pl.DataFrame) -> pl.DataFrame:
    """One row a graph, K, method and seed: what does not depend on score, rule or level."""
    own = rows_of_target(definition, preset, rows).filter(pl.col("variant") == "")
    return own.unique(["dataset", "clients", "method", "seed"], keep="first", maintain_order=True)


def _shown(definition: Definition, selection: Selection) -> pl.Expr:
    """A variant's own methods, each with the model that it has or that the definition names."""
    model = definition.settings.get("model", MODEL)
    plain = Variant("", selection.methods, {})
    return pl.any_horizontal(
        (pl.col("variant") == variant.name)
        & (pl.col("method") == method)
        & (pl.col("model") == (METHODS[recipe_of(method).base].model or model))
        for variant in (plain, *selection.variants)
        for method in variant.methods
    )


def _ordered(rows: pl.DataFrame, definition: Definition, selection: Selection) -> pl.DataFrame:
    """Sorted as the definition lists things, whatever the order in which they were computed."""
    names = ["", *(variant.name for variant in selection.variants)]
    orders: dict[str, Sequence[object]] = {
        "dataset": definition.graphs,
        "clients": definition.clients,
        "method": selection.methods,
        "variant": names,
        "score": selection.scores,
        "quantile": selection.quantiles,
        "alpha": definition.alphas,
    }
    keys = [
        pl.col(name).replace_strict(list(order), list(range(len(order))), return_dtype=pl.Int64)
        for name, order in orders.items()
    ]
    return rows.sort(*keys, "seed")
