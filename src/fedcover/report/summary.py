"""Rows of seeds to cells: set size and coverage, the error of both, and whether the promise held.

The splits that were really calibrated decide: their coverage against its exact interval, and a
permutation test of calibration against test scores. Re-splits are valid for any score, even one
that was trained on calibration labels: their mean against the theorem's band, up to three standard
errors, checks the arithmetic (docs/guarantee.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from statistics import fmean
from typing import Any

import polars as pl

from fedcover.config import recipe_of
from fedcover.conformal import (
    RULES,
    base_score,
    beta_binomial,
    beta_binomial_interval,
)
from fedcover.conformal.checks import SLACK
from fedcover.conformal.exchangeability import rejects
from fedcover.tables import KEY, SPLIT, with_later

CELL = ("score", "quantile", "method", "alpha")
STANDARD_ERRORS = 3
MEANS = (
    "clients", "n_calibration", "n_test", "set_size", "coverage", "singleton_rate", "empty_rate",
    "singleton_hits", "worst_slab_coverage", "min_client_coverage", "accuracy",
)  # fmt: skip


Info = Mapping[str, Any]  # what run.json holds


def summarise(
    results: pl.DataFrame, groups: pl.DataFrame, resplits: int, info: Info | None = None
) -> pl.DataFrame:
    """A run's cells (see :func:`summarise_rows`): one for each score, rule, method and level."""
    rows = with_spread(results, groups).with_columns(pl.lit(resplits).alias("resplits"))
    return summarise_rows(rows, CELL, info)


def cut_share(info: Info) -> float | None:
    """What share of the edges lies between clients, mean over seeds; None where nobody knows."""
    cut, edges = info.get("cut_edges"), info.get("graph", {}).get("edges")
    return fmean(cut) / max(edges, 1) if cut and edges is not None else None


def with_spread(results: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """The rows of ``results.csv`` with ``coverage_sd``, which ``groups.csv`` holds."""
    spread = groups.filter(pl.col("kind") == "all").select(*KEY, "coverage_sd")
    return results.join(spread, on=KEY, how="left", maintain_order="left")


def summarise_rows(rows: pl.DataFrame, by: Sequence[str], info: Info | None = None) -> pl.DataFrame:
    """Means over seeds, one row for each cell, which is what ``by`` tells apart.

    ``rows`` have the columns of ``results.csv``, ``coverage_sd`` over re-splits, and ``resplits``.
    Where coverage was not measured, for want of test nodes, it is None.
    ``set_size_sd`` and ``coverage_sd`` are spreads over seeds. ``coverage_se`` is the standard
    error of the mean coverage over seeds and re-splits: given the trained models, only the
    re-splits are random. One re-split has no spread of its own; the Beta-binomial's stands in
    (docs/guarantee.md). ``below``: coverage lies under 1 − alpha by more than three of these
    errors. ``low`` and ``high`` are the theorem's band, None where nothing is promised or where
    there is no upper end, and ``resplit_status`` says where re-splits lie.

    ``coverage_split`` is the share that is covered of all seeds' test nodes in the splits that were
    calibrated, None in rows of an earlier version; it lies in ``split_low`` … ``split_high`` in 95
    of 100 cases if the expected coverage is 1 − alpha … ``high``. ``info``, what the run's
    ``run.json`` says, adds ``given`` (the user's split: seeds share it, and it counts once),
    ``p_value``, ``party`` and ``party_p_value``. ``status`` is what :func:`status` says.
    """
    info = info or {}
    error = (pl.col("coverage_sd") ** 2 / pl.col("resplits")).sum().sqrt() / pl.len()
    short = (1 - pl.col("alpha")) - pl.col("coverage")
    cells = (
        with_later(rows)
        .with_columns(_spread(rows))
        .join(_effective(info), on=["method", "seed"], how="left", maintain_order="left")
        .with_columns(
            pl.col("n_effective").fill_null(pl.col("n_calibration")),
            pl.col("m_effective").fill_null(pl.col("n_test")),
        )
        .group_by(by, maintain_order=True)
        .agg(
            *(pl.col(name).mean() for name in MEANS if name not in by),
            pl.col("set_size", "coverage").std().name.suffix("_sd"),
            pl.when(pl.col("coverage").count() > 0).then(error).alias("coverage_se"),
            pl.len().alias("seeds"),
            ((pl.col(SPLIT) * pl.col("n_test")).sum() / pl.col("n_test").sum()).alias(SPLIT),
            pl.col(SPLIT).null_count().alias("unknown"),
            pl.struct("n_effective", "m_effective").alias("splits"),
        )
        .with_columns((short > STANDARD_ERRORS * pl.col("coverage_se")).alias("below"))
    )
    promise = _Promise.of(info)
    tests = {(one["method"], one["score"]): one for one in info.get("exchangeability", ())}
    judged = []
    for cell in cells.iter_rows(named=True):
        low, high = promise.band(cell)
        test = tests.get((cell["method"], cell["score"]), {})
        cell |= {"low": low, "high": high, "given": info.get("split") == "given"}
        cell |= {name: test.get(name) for name in TEST}
        cell[SPLIT] = None if cell["unknown"] or isnan(cell[SPLIT]) else cell[SPLIT]
        cell["split_low"], cell["split_high"] = _interval(cell)
        cell["resplit_status"] = resplit_status(cell)
        judged.append({name: cell[name] for name in _JUDGED} | {"status": status(cell)})
    return cells.drop(SPLIT, "unknown", "splits").hstack(
        pl.DataFrame(judged, schema=_JUDGED | {"status": pl.String})
    )


TEST = {"p_value": pl.Float64, "party": pl.String, "party_p_value": pl.Float64}
_JUDGED = {
    **dict.fromkeys((SPLIT, "split_low", "split_high"), pl.Float64),
    "given": pl.Boolean,
    **TEST,
    **dict.fromkeys(("low", "high"), pl.Float64),
    "resplit_status": pl.String,
}


def _effective(info: Info) -> pl.DataFrame:
    """By method and seed, what the spread of a split's coverage is reckoned with."""
    rows = [
        (method, seed, *both)
        for method, found in info.get("effective", {}).items()
        for seed, both in zip(info["seeds"], found, strict=True)
    ]
    numbers = dict.fromkeys(("seed", "n_effective", "m_effective"), pl.Int64)
    return pl.DataFrame(rows, schema={"method": pl.String, **numbers}, orient="row")


def _interval(cell: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Where 95 of 100 means of calibrated splits lie, if the promise holds as narrowly as it may,
    or as amply."""
    splits = cell["splits"][:1] if cell["given"] else cell["splits"]
    n, m = [one["n_effective"] for one in splits], [one["m_effective"] for one in splits]
    if cell[SPLIT] is None or not sum(m):
        return None, None

    def ends(coverage: float) -> tuple[float, float]:
        return beta_binomial_interval(n, m, [coverage * (own + 1) for own in n])

    high = cell["high"]
    return ends(1 - cell["alpha"])[0], None if high is None else ends(high)[1]


def status(cell: Mapping[str, Any]) -> str:
    """``none`` (no guarantee), ``promised`` (not measured), ``below``, ``above`` or ``inside``.

    The calibrated splits decide. Re-splits below the band refute the promise too, unless the split
    was given: then they say nothing. They stand alone where nothing else is known.
    """
    by_resplits = resplit_status(cell)
    if by_resplits in ("none", "promised") or cell[SPLIT] is None:
        return by_resplits
    short = by_resplits == "below" and not cell["given"]
    if short or split_below(cell) or is_rejected(cell):
        return "below"
    high = cell["split_high"]
    return "above" if high is not None and cell[SPLIT] > high else "inside"


def split_below(cell: Mapping[str, Any]) -> bool:
    """Whether the calibrated splits cover less than the least that 1 − alpha allows."""
    low = cell["split_low"]
    return low is not None and cell[SPLIT] is not None and bool(cell[SPLIT] < low)


def is_rejected(cell: Mapping[str, Any]) -> bool:
    """Whether the permutation test says that test nodes are not like calibration nodes."""
    return cell["p_value"] is not None and rejects(cell["p_value"], cell["party_p_value"])


def resplit_status(cell: Mapping[str, Any]) -> str:
    """``none`` (no guarantee), ``promised``, ``below``, ``above`` or ``inside`` the band."""
    if cell["low"] is None:
        return "none"
    if cell["coverage"] is None:
        return "promised"
    slack = STANDARD_ERRORS * cell["coverage_se"]
    if cell["coverage"] < cell["low"] - slack:
        return "below"
    if cell["high"] is not None and cell["coverage"] > cell["high"] + slack:
        return "above"
    return "inside"


def promised(info: Info, level: str, rules: Sequence[str]) -> str:
    """What a run without test nodes can say of the sets of its nodes without a label; ``info`` is
    its ``run.json``."""
    said, nodes = "No test nodes: coverage was not measured.", info["graph"]["unlabelled"]
    config, apart = info["config"], info.get("apart", {})
    calibrate, confidence = config.get("calibrate", "pooled"), config.get("confidence")
    if not any(RULES[rule].guarantee for rule in rules):
        return f"{said} The rule {' and the rule '.join(rules)} promises none."
    if not nodes:
        return f"{said} Every node has a label, so that no set was made."
    whom = f"the {nodes:,} node{'' if nodes == 1 else 's'} without a label"
    if calibrate != "pooled":
        whom = f"{whom}, in each {calibrate} with enough calibration nodes"
    how = "on average"
    if confidence is not None and "exact" in rules:
        how = f"with a confidence of {confidence:g} over calibration sets"
    counted = set(rules) != {"exact"} or calibrate in ("class", "group")
    if counted and apart.get("calibration", 0.0) > SLACK:
        how += ", but with clients counted by their calibration nodes"
    elif apart.get("asked", 0.0) > SLACK and calibrate != "client":
        how += ", but with clients counted by the shares that were set"
    return (
        f"{said} Promised: at least {level} of {whom}, {how}, if labels are missing at random "
        "within each client."
    )


def _spread(rows: pl.DataFrame) -> pl.Series:
    """The measured spread over re-splits, or what theory gives where none was measured."""
    seeds = rows.select("coverage_sd", "alpha", "n_calibration", "n_test").fill_nan(None)
    spread = [
        beta_binomial(*seed)[1] if sd is None and seed[-1] else sd
        for sd, *seed in seeds.iter_rows()
    ]
    return pl.Series("coverage_sd", spread, dtype=pl.Float64)


@dataclass(frozen=True)
class _Promise:
    """What a run's settings and its nodes mean for the promise of its cells."""

    calibrate: str = "pooled"
    confident: bool = False
    apart: bool = False  # whether nodes are asked about otherwise than calibration nodes are spread

    @classmethod
    def of(cls, info: Info) -> "_Promise":
        """From ``run.json``."""
        config, apart = info.get("config", {}), info.get("apart", {}).get("calibration", 0.0)
        confident = config.get("confidence") is not None
        return cls(config.get("calibrate", "pooled"), confident, apart > SLACK)

    def band(self, cell: Mapping[str, Any]) -> tuple[float | None, float | None]:
        """Where the theorem puts a cell's mean coverage; its ends may be None.

        All rules but ``exact``, groups, and one owner go by calibration nodes: where nodes are
        asked about otherwise, they promise nothing for them. Scores that tie have no upper end, nor
        has a confidence; that of groups needs their numbers, which tables of results do not hold.
        """
        rule, low = cell["quantile"], 1 - cell["alpha"]
        counted = rule != "exact" or self.calibrate in ("class", "group")
        if not RULES[rule].guarantee or (self.apart and (counted or is_owner(cell["method"]))):
            return None, None
        n, K = cell["n_calibration"], cell["clients"]
        least = min(one["n_effective"] for one in cell["splits"])  # of n_k/p_k
        slack = K / (n + K) if rule == "theorem1" else 2 / max(least, 1)
        sure = self.confident and rule == "exact"
        bounded = self.calibrate == "pooled" and not base_score(cell["score"]).ties and not sure
        return low, low + slack if bounded else None


def is_owner(method: str) -> bool:
    """Whether one owner of all nodes calibrates."""
    return recipe_of(method).method.graph == "whole"


def closed_share(results: pl.DataFrame) -> pl.DataFrame:
    """How much of the distance from ``fed`` to ``restored`` ``gen`` closes, in labels a set.

    One row for each score, quantile and level. ``closed`` is 1 where Gen does as well as a perfect
    generator would and negative where it does worse than ``fed``. It is missing where the distance
    is no larger than two of its standard errors over the seeds: a share of nothing means nothing.
    """
    cell = ["score", "quantile", "alpha"]
    seeds = results.pivot("method", index=[*cell, "seed"], values="set_size", maintain_order=True)
    distance, gained = pl.col("fed") - pl.col("restored"), pl.col("fed") - pl.col("gen")
    error = (distance.std() / pl.len().sqrt()).fill_null(0.0)
    clear = pl.when(distance.mean() > 2 * error)
    closed = clear.then(gained.mean() / distance.mean()).alias("closed")
    return seeds.group_by(cell, maintain_order=True).agg(closed)
