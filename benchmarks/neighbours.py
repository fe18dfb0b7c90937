"""What +neighbours brings: paired over seeds, on graphs cut in four ways.

`measure` runs the parts below and adds their rows to a CSV file; a run that the file has is not
repeated. `tables` prints the tables of docs/neighbours.md from it. LAC, `exact`, five seeds; three
on Computers, if not at random, and fewer values of m there, since it is slow. The graphs other than
Cora need FEDCOVER_DATA.

    python benchmarks/neighbours.py measure ROWS.csv [--parts closed,recipe,...] [--graphs cora,...]
    python benchmarks/neighbours.py tables ROWS.csv

closed      plain FedAvg, K = 10, four partitions: fed, restored, m = 1 and 3; on random and
            label-skew also m = 2 and 5, and m = 3 where no sum is shared
recipe      the default recipe with and without +neighbours, K = 10 and 20, not label-skew; on METIS
            and Louvain, Computers apart, also m = 1
generators  gen and fedsage+, K = 10, four partitions
share       a quarter, a half and three quarters of the cut edges known: random, K = 10
values      encodings and soft labels in place of features: random and label-skew, K = 10
noise       features and soft labels with ε = 1, 8 and 32, of an edge and of a node: random, K = 10
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
from scipy.stats import t as student

import fedcover
from fedcover.config import BEST, BEST_LINKED
from fedcover.config.settings import NeighbourSettings
from fedcover.report.summary import STANDARD_ERRORS, summarise

GRAPHS = ("cora", "citeseer", "pubmed", "computers")
PARTITIONS = ("random", "label-skew", "metis", "louvain")
PLAIN = "fed+neighbours"
SEEDS, SLOW, FEWER = 5, "computers", 3  # seeds; on which graph fewer, if it is not cut at random
USUAL = {
    "preset": "plain", "partition": "random", "clients": 10, "share": 1.0, "values": "features",
    "least": 3, "shared": True, "epsilon": None, "cap": None,
}  # fmt: skip
SUMS = ("values", "least", "shared", "epsilon", "cap")  # what +neighbours is told
TOO_FEW = {(SLOW, "louvain", 20)}  # its Louvain communities are 19
EXCHANGED = ("links in common", "neighbours' sums")  # kinds of messages

Job = dict[str, Any]


ONE = {"least": 1}


def jobs(part: str, graph: str) -> Iterator[tuple[tuple[str, ...], Job]]:
    """The runs of a part: methods, and what differs from :data:`USUAL`."""
    slow = graph == SLOW
    match part:
        case "closed":
            for cut in PARTITIONS:
                yield ("fed", "restored", PLAIN), {"partition": cut, "least": 1}
                yield (PLAIN,), {"partition": cut}
                if cut == "random" or (cut == "label-skew" and not slow):
                    yield (PLAIN,), {"partition": cut, "shared": False}
                    yield (PLAIN,), {"partition": cut, "least": 2}
                    yield (PLAIN,), {"partition": cut, "least": 5}
        case "recipe":
            for cut in ("metis", "louvain", "random"):
                for clients in (10, 20):
                    told = {"preset": "default", "partition": cut, "clients": clients}
                    yield (BEST, BEST_LINKED), told
                    if cut != "random" and not slow:
                        yield (BEST_LINKED,), told | ONE
        case "generators":
            for cut in PARTITIONS:
                yield ("gen", "fedsage+"), {"partition": cut}
        case "share":
            for share in (0.25, 0.5, 0.75):
                for least in (1, 3):
                    yield (PLAIN,), {"share": share, "least": least}
        case "values":
            for cut in ("random", "label-skew"):
                for values in ("encoding", "labels"):
                    for least in (1, 3):
                        yield (PLAIN,), {"partition": cut, "values": values, "least": least}
        case "noise":
            for values in ("features", "labels"):
                if slow and values == "labels":
                    yield (PLAIN,), {"values": values}
                for epsilon in (1.0, 8.0, 32.0):
                    if slow and (values, epsilon) != ("labels", 8.0):
                        continue
                    for cap in (None, 10):
                        yield (PLAIN,), {"values": values, "epsilon": epsilon, "cap": cap}


def measured(graph: str, methods: tuple[str, ...], job: Job) -> pl.DataFrame:
    """One run: a row for each method, level and seed."""
    told = USUAL | job
    seeds = FEWER if graph == SLOW and told["partition"] != "random" else SEEDS
    config = fedcover.Config.preset(
        told["preset"], clients=told["clients"], partition=told["partition"], methods=methods,
        cut_edges="known", known_share=told["share"], scores=("lac",), quantiles=("exact",),
        seeds=seeds,
        neighbour=NeighbourSettings(**{name: told[name] for name in SUMS}),
    )  # fmt: skip
    began = time.perf_counter()
    run = fedcover.run(fedcover.load(graph), config)
    seconds = time.perf_counter() - began
    print(f"{graph} {methods} {job}: {seconds:.0f} s", flush=True)
    band = summarise(run.results, run.groups, config.resplits, run.info).select(
        "method", "alpha", "low", "high", "coverage_se", "split_low", "split_high"
    )
    info, by_seed = run.info, []
    for method in methods:
        chosen, sent = info["chosen_on_validation"][method], info["bytes_by_kind"].get(method)
        for number, seed in enumerate(info["seeds"]):
            exchange = [k for k in (sent or [{}] * seeds)[number] if k in EXCHANGED]
            by_seed.append({
                "method": method, "seed": seed, "valid_loss": chosen["valid_loss"][number],
                "cut": info["cut_edges"][number] / info["graph"]["edges"],
                "received": sum(chosen.get("received", [[0]] * seeds)[number]),
                "bytes": sum(sum(sent[number][kind].values()) for kind in exchange),
                "seconds": info["seconds"][f"train {method}"] / seeds,
            })  # fmt: skip
    return (
        run.results.join(band, on=["method", "alpha"])
        .join(pl.DataFrame(by_seed), on=["method", "seed"])
        .select(
            pl.lit(graph).alias("graph"),
            *(pl.lit(value, dtype=KINDS[name]).alias(name) for name, value in told.items()),
            (1 - pl.col("alpha")).round(6).alias("level"),
            "method", "seed", "set_size", "coverage", "coverage_split", "accuracy", "low", "high",
            "coverage_se", "split_low", "split_high", "valid_loss", "cut", "received", "bytes",
            "seconds",
        )
    )  # fmt: skip


KINDS = {
    name: pl.Int64 if name in ("clients", "least", "cap") else
    pl.Float64 if name in ("share", "epsilon") else
    pl.Boolean if name == "shared" else pl.String for name in USUAL
}  # fmt: skip


def measure(file: Path, parts: list[str], graphs: list[str]) -> None:
    """Add what is missing to the file."""
    for graph in graphs:
        for part in parts:
            for methods, job in jobs(part, graph):
                known = read(file)
                told = USUAL | job
                if (graph, told["partition"], told["clients"]) in TOO_FEW:
                    continue
                same = pl.all_horizontal(
                    pl.col("graph") == graph,
                    *(pl.col(name).eq_missing(pl.lit(told[name], KINDS[name])) for name in USUAL),
                )
                there = set(known.filter(same)["method"]) if len(known) else set()
                missing = tuple(method for method in methods if method not in there)
                if missing:
                    rows = measured(graph, missing, job)
                    pl.concat([known, rows] if len(known) else [rows]).write_csv(
                        file, float_precision=6
                    )


def read(file: Path) -> pl.DataFrame:
    """The rows so far."""
    return pl.read_csv(file, schema_overrides=KINDS) if file.exists() else pl.DataFrame()


# Tables.


def paired(rows: pl.DataFrame, one: pl.Expr, other: pl.Expr, *by: str) -> pl.DataFrame:
    """By cell: both mean sizes with their coverage, and the paired difference with its 95 %
    interval, Student's over the seeds."""
    keys = [*by, "level"]
    wanted = [*keys, "seed", "set_size", "coverage"]
    both = rows.filter(one).select(wanted).join(
        rows.filter(other).select(wanted), on=[*keys, "seed"], suffix="_other"
    )  # fmt: skip
    difference = pl.col("set_size") - pl.col("set_size_other")
    found = both.group_by(keys, maintain_order=True).agg(
        pl.col("set_size", "coverage", "set_size_other", "coverage_other").mean(),
        difference.mean().alias("difference"),
        (difference.std() / pl.len().sqrt()).alias("error"),
        pl.len().alias("seeds"),
    )
    factor = pl.Series([student.ppf(0.975, n - 1) for n in found["seeds"]], dtype=pl.Float64)
    return found.with_columns((pl.col("error") * factor).alias("half"))


def method(name: str, **told: Any) -> pl.Expr:
    """The rows of a method that was told this."""
    sums = {key: USUAL[key] for key in (*SUMS, "share")}
    wanted = (sums if "neighbours" in name else {}) | told
    return (pl.col("method") == name) & pl.all_horizontal(
        pl.lit(True),
        *(pl.col(key).eq_missing(pl.lit(value, KINDS[key])) for key, value in wanted.items()),
    )


def line(*cells: object) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def heading(*cells: str, words: int) -> str:
    """Its first rows; so many columns hold words."""
    return f"{line(*cells)}\n|{'---|' * words}{'--:|' * (len(cells) - words)}"


def sizes(found: pl.DataFrame) -> str:
    """``size (coverage)`` at the three levels, the highest first."""
    ordered = found.sort("level", descending=True)
    return " / ".join(
        f"{size:.2f} ({covered:.3f})" for size, covered in
        ordered.select("set_size", "coverage").iter_rows()
    )  # fmt: skip


def closed(rows: pl.DataFrame, name: str = PLAIN, **told: Any) -> pl.DataFrame:
    """By graph and level: the share of the distance from fed to restored that a method closes, and
    its 95 % interval by the delta method over paired seeds."""
    keys, size = ["graph", "level", "seed"], pl.col("set_size")
    own, fed, true = (
        rows.filter(method(one, **more)).select(*keys, size.alias(short))
        for one, more, short in ((name, told, "own"), ("fed", {}, "fed"), ("restored", {}, "true"))
    )
    wide = own.join(fed, on=keys).join(true, on=keys)
    gained, distance = pl.col("fed") - pl.col("own"), pl.col("fed") - pl.col("true")
    ratio = gained.mean() / distance.mean()
    found = wide.group_by("graph", "level", maintain_order=True).agg(
        ratio.alias("closed"),
        gained.mean().alias("gained"),
        distance.mean().alias("distance"),
        ((gained - ratio * distance).std() / pl.len().sqrt() / distance.mean()).alias("error"),
        pl.len().alias("seeds"),
    )
    factor = pl.Series([student.ppf(0.975, n - 1) for n in found["seeds"]], dtype=pl.Float64)
    return found.with_columns((pl.col("error").abs() * factor).alias("half"))


def changes(found: pl.DataFrame) -> str:
    """Paired differences with their intervals, the highest level first; bold where sure."""
    return " / ".join(
        f"**{change:+.2f}** ± {half:.2f}" if abs(change) > half else f"{change:+.2f} ± {half:.2f}"
        for change, half in
        found.sort("level", descending=True).select("difference", "half").iter_rows()
    )  # fmt: skip


def less_fed(own: pl.DataFrame, **told: Any) -> str:
    """What +neighbours takes off the sets of fed."""
    return changes(paired(own, method(PLAIN, **told), method("fed"), "graph"))


USUALLY: Job = {}
METHODS = {
    "fed": ("fed", USUALLY), "gen": ("gen", USUALLY), "fedsage+": ("fedsage+", USUALLY),
    "m = 3": (PLAIN, USUALLY), "m = 1": (PLAIN, ONE), "restored": ("restored", USUALLY),
}  # fmt: skip
VARIANTS = {
    "m = 1": ONE, "m = 2": {"least": 2}, "m = 3": USUALLY, "m = 3, none shared": {"shared": False},
    "m = 5": {"least": 5},
}  # fmt: skip


def near(own: pl.DataFrame, **told: Any) -> str:
    """The shares of the distance that +neighbours closes, the highest level first, in per cent."""
    part = closed(own, **told).sort("level", descending=True).select("closed", "half")
    return " / ".join(f"{100 * share:.0f} ± {100 * half:.0f}" for share, half in part.iter_rows())


def closed_table(rows: pl.DataFrame) -> Iterator[str]:
    """A table for each partition, and one of the least number of far ends."""
    plain = rows.filter(preset="plain", clients=10)
    for cut in PARTITIONS:
        here, few = plain.filter(partition=cut), cut in ("metis", "louvain")
        edges = dict(here.group_by("graph").agg(pl.col("cut").mean()).iter_rows())
        last = "less fed at 0.95 / 0.90 / 0.80" if few else "closed at 0.95 / 0.90 / 0.80, %"
        shares = (f"m = 3: {last}", f"m = 1: {last}")
        yield f"\n**{cut}**, sizes at 0.90 (covers)\n"
        yield heading("graph", "cut", *METHODS, *shares, words=1)
        for graph in filter(edges.__contains__, GRAPHS):
            own = here.filter(graph=graph)
            at = own.filter(level=0.9)
            cells = []
            for name, told in METHODS.values():
                found = at.filter(method(name, **told))
                means = found["set_size"].mean(), found["coverage"].mean()
                cells.append("{:.2f} ({:.3f})".format(*means) if len(found) else "")
            ends = [less_fed(own, **t) if few else near(own, **t) for t in (USUALLY, ONE)]
            yield line(graph, f"{edges[graph]:.0%}", *cells, *ends)
        if not few:
            found = [closed(here, **told) for told in (USUALLY, ONE)]
            means = [one["closed"].mean() for one in found]
            whole = [one["gained"].sum() / one["distance"].sum() for one in found]
            yield (
                "\nm = 3 closes {:.0%} and m = 1 {:.0%}, mean over graphs and levels; of all these "
                "distances added up, {:.0%} and {:.0%}.".format(*means, *whole)
            )
    yield "\n**The least number of far ends**: closed at 0.95 / 0.90 / 0.80, %\n"
    yield heading("partition", "graph", *VARIANTS, words=2)
    for cut in ("random", "label-skew"):
        for graph in GRAPHS:
            own = plain.filter(partition=cut, graph=graph)
            if len(own):
                yield line(cut, graph, *(near(own, **told) for told in VARIANTS.values()))


def recipe_table(rows: pl.DataFrame) -> Iterator[str]:
    """The default recipe with and without +neighbours: a line for each partition, graph and K."""
    here = rows.filter(preset="default")
    by = ["partition", "graph", "clients"]
    pairs = paired(here, method(BEST_LINKED), method(BEST), *by)
    ratio = pl.col("set_size") / pl.col("set_size_other")
    pairs = pairs.with_columns(ratio.alias("ratio")).sort("level", descending=True)
    yield heading("partition", "graph", "K", "without: 0.95 / 0.90 / 0.80 (covers)",
                  "with (covers)", "difference", "ratio", words=2)  # fmt: skip
    order = (*PARTITIONS, *GRAPHS)
    lines = dict(pairs.group_by(by))
    for key in sorted(lines, key=lambda key: (*map(order.index, key[:2]), key[2])):
        own = lines[key]
        other = own.select("level", set_size="set_size_other", coverage="coverage_other")
        ratios = " / ".join(f"{one:.2f}" for one in own["ratio"])
        yield line(*key, sizes(other), sizes(own), changes(own), ratios)
    single = paired(here, method(BEST_LINKED, **ONE), method(BEST), *by)
    single = single.with_columns(ratio.alias("ratio"))
    for cut in dict.fromkeys(key[0] for key in lines):
        own, alone = pairs.filter(partition=cut), single.filter(partition=cut)
        if len(alone):
            same = own.join(alone, on=[*by, "level"], how="semi")
            yield (
                f"\n{cut}, m = 1: mean ratio {alone['ratio'].mean():.3f} over {len(alone)} cells, "
                f"in which m = 3 has {same['ratio'].mean():.3f}."
            )
        larger = own.filter(pl.col("difference") > pl.col("half")).height
        smaller = own.filter(pl.col("difference") < -pl.col("half")).height
        yield (
            f"\n{cut}: mean ratio {own['ratio'].mean():.3f} over {len(own)} cells; the interval of "
            f"the difference is below zero in {smaller} of them, and above in {larger}."
        )
    cells = (
        here.filter(method(BEST_LINKED))
        .group_by(*by, "level")
        .agg(
            pl.col("coverage", "coverage_split").mean(),
            pl.col("low", "high", "coverage_se", "split_low", "split_high").first(),
        )
    )
    slack = STANDARD_ERRORS * pl.col("coverage_se")
    inside = pl.col("coverage").is_between(pl.col("low") - slack, pl.col("high") + slack)
    split = pl.col("coverage_split").is_between(pl.col("split_low"), pl.col("split_high"))
    yield (
        f"\nWith +neighbours: in the theorem's band in {cells.filter(inside).height} of "
        f"{len(cells)} cells; the calibrated splits inside their 95 % interval in "
        f"{cells.filter(split).height}."
    )


def share_table(rows: pl.DataFrame) -> Iterator[str]:
    """By the share of cut edges that both ends know."""
    here = rows.filter(preset="plain", clients=10, partition="random")
    yield heading("graph", "m", "share known", "0.95 / 0.90 / 0.80 (covers)", words=1)
    for graph in here.filter(pl.col("share") < 1)["graph"].unique(maintain_order=True):
        for least in (1, 3):
            for share in (0.0, 0.25, 0.5, 0.75, 1.0):
                wanted = method(PLAIN, least=least, share=share) if share else method("fed")
                found = here.filter(wanted, graph=graph)
                means = found.group_by("level").agg(pl.col("set_size", "coverage").mean())
                if len(means):
                    yield line(graph, least, f"{share:.2f}", sizes(means))


def values_table(rows: pl.DataFrame) -> Iterator[str]:
    """What is added up: the validation loss, what is closed, and the bytes of the exchange."""
    here = rows.filter(preset="plain", clients=10)
    yield heading("partition", "graph", "m", "added up", "sizes (covers)", "closed, %", "loss",
                  "MB", words=2)  # fmt: skip
    for cut in ("random", "label-skew"):
        for graph in here.filter(pl.col("values") != "features")["graph"].unique(
            maintain_order=True
        ):
            for least in (1, 3):
                for values in ("features", "encoding", "labels"):
                    own = here.filter(graph=graph, partition=cut)
                    told = {"least": least, "values": values}
                    found = own.filter(method(PLAIN, **told))
                    if len(found):
                        means = found.group_by("level").agg(pl.col("set_size", "coverage").mean())
                        yield line(
                            cut, graph, least, values, sizes(means), near(own, **told),
                            f"{found['valid_loss'].mean():.3f}",
                            f"{found['bytes'].mean() / 1e6:.1f}",
                        )  # fmt: skip


def noise_table(rows: pl.DataFrame) -> Iterator[str]:
    """Noise: by graph, what is added up, ε and whom it is of."""
    here = rows.filter(preset="plain", clients=10, partition="random")
    yield heading(
        "graph", "added up", "ε", "of", "0.95 / 0.90 / 0.80 (covers)", "closed, %", words=2
    )
    for graph in here.drop_nulls("epsilon")["graph"].unique(maintain_order=True):
        for values in ("features", "labels"):
            for epsilon in (1.0, 8.0, 32.0, None):
                for cap in (None, 10) if epsilon else (None,):
                    own = here.filter(graph=graph)
                    told = {"values": values, "epsilon": epsilon, "cap": cap}
                    found = own.filter(method(PLAIN, **told))
                    if len(found):
                        means = found.group_by("level").agg(pl.col("set_size", "coverage").mean())
                        whom = "–" if not epsilon else "a node" if cap else "an edge"
                        yield line(
                            graph, values, epsilon or "none", whom, sizes(means), near(own, **told)
                        )


def main() -> None:
    """Measure, or print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("measure", "tables"))
    parser.add_argument("rows", type=Path)
    parser.add_argument("--parts", default="closed,recipe,generators,share,values,noise")
    parser.add_argument("--graphs", default=",".join(GRAPHS))
    args = parser.parse_args()
    parts = args.parts.split(",")
    if args.what == "measure":
        measure(args.rows, parts, args.graphs.split(","))
        return
    rows = read(args.rows)
    tables = {"closed": closed_table, "recipe": recipe_table, "share": share_table,
              "values": values_table, "noise": noise_table}  # fmt: skip
    for part, table in tables.items():
        if part in parts:
            print(f"\n## {part}\n", *table(rows), sep="\n")


if __name__ == "__main__":
    main()
