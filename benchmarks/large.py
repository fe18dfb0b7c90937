"""Time and memory of ``fedcover inspect`` and ``fedcover run`` from 10⁴ to 10⁶ nodes.

A graph of n nodes has 10·n edges, 16 features and 5 classes; it is written as Parquet, as an own
graph would be. Nodes live in communities of about 500, and four edges in five stay inside, so that
there is something to cut along and neighbours tend to share a label (edge homophily about 0.5). A
community's size does not grow with n: the larger graphs are more of the same, and only then does
growth say something about the program. Node numbers are shuffled, so that no order helps.

Each step is a process of its own, whose wall time, processor time (all threads) and peak memory
(resident set) are printed. The exponent is the slope of log time against log n between the first
and the last size, after the time that the same step takes on a graph of 200 nodes (imports,
start-up) is taken away. That of the processor time decides, because on a shared machine the wall
clock also counts what others do; both are printed.

    python benchmarks/large.py                       # 10⁴, 10⁵, 10⁶; 20 rounds; some 10 minutes
    python benchmarks/large.py --sizes 10000,100000 --rounds 100
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

EDGES_PER_NODE = 10
FEATURES = 16
CLASSES = 5
COMMUNITY = 500
INSIDE = 0.8  # share of edges that stay in their community
PURE = 0.7  # share of nodes with their community's label; the others have any
SMALLEST = 200  # nodes of the graph that start-up is measured on
EXPONENT = 1.1
GIB = 24


def write_graph(folder: Path, nodes: int, *, clients: int | None = None, seed: int = 0) -> None:
    """Write ``nodes.parquet`` and ``edges.parquet``; with ``clients``, a client column too."""
    rng = np.random.default_rng([seed, nodes, 0x1A46E])
    communities = max(nodes // COMMUNITY, 2)
    home = rng.permutation(np.arange(nodes) % communities)
    usual = rng.integers(0, CLASSES, communities)
    y = np.where(rng.random(nodes) < PURE, usual[home], rng.integers(0, CLASSES, nodes))
    centres = np.random.default_rng(seed).normal(size=(CLASSES, FEATURES))
    x = (0.5 * centres[y] + rng.normal(size=(nodes, FEATURES))).astype(np.float32)

    source = np.repeat(np.arange(nodes), EDGES_PER_NODE)
    by_home = np.argsort(home, kind="stable")
    sizes = np.bincount(home, minlength=communities)
    first = np.cumsum(sizes) - sizes
    mates = home[source]
    near = by_home[first[mates] + (rng.random(len(source)) * sizes[mates]).astype(np.int64)]
    anyone = rng.integers(0, nodes, len(source))
    target = np.where(rng.random(len(source)) < INSIDE, near, anyone)

    columns: dict[str, object] = {"id": np.arange(nodes), "label": y}
    if clients is not None:
        columns["client"] = home % clients
    columns |= {f"f{j}": x[:, j] for j in range(FEATURES)}
    folder.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(columns).write_parquet(folder / "nodes.parquet")
    edges = pl.DataFrame({"source": source, "target": target})
    edges.write_parquet(folder / "edges.parquet")


class Cost(NamedTuple):
    """What one command took."""

    wall: float
    processor: float
    gib: float


def measure(arguments: list[str], threads: int) -> Cost:
    """The cost of one ``fedcover`` command in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "fedcover", *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"fedcover {' '.join(arguments)} ended with {process.returncode}")
    return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20)


def exponent(small: float, large: float, start_up: float, factor: float) -> float:
    """The slope of log seconds against log nodes, without the start-up."""
    spent = [max(seconds - start_up, 0.01) for seconds in (small, large)]
    return math.log(spent[1] / spent[0]) / math.log(factor)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="10000,100000,1000000", help="numbers of nodes")
    parser.add_argument("--rounds", type=int, default=20, help="of training; run's own is 100")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--given", action="store_true", help="a client column in place of METIS")
    parser.add_argument("--stages", action="store_true", help="print each run's seconds by stage")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]

    partition = ["--partition", "given"]
    if not options.given:
        partition = ["--partition", "metis", "--clients", str(options.clients)]
    training = ["--methods", "fed", "--seeds", "1", "--rounds", str(options.rounds)]
    rows: dict[str, dict[int, Cost]] = {"inspect": {}, "run": {}}
    with tempfile.TemporaryDirectory() as scratch:
        print(f"{'nodes':>9} {'step':8} {'wall s':>9} {'processor s':>12} {'peak GiB':>9}")
        for nodes in (SMALLEST, *sizes):
            folder, out = Path(scratch) / f"graph-{nodes}", Path(scratch) / f"run-{nodes}"
            write_graph(folder, nodes, clients=options.clients if options.given else None)
            steps = {
                "inspect": ["inspect", str(folder), *partition],
                "run": ["run", str(folder), *partition, *training, "--out", str(out), "--quiet"],
            }
            for step, arguments in steps.items():
                cost = rows[step][nodes] = measure(arguments, options.threads)
                print(
                    f"{nodes:>9,} {step:8} {cost.wall:>9.1f} {cost.processor:>12.1f} "
                    f"{cost.gib:>9.2f}",
                    flush=True,
                )
            if options.stages:
                print(json.loads((out / "run.json").read_text())["seconds"], flush=True)

    failed = False
    for step, by_size in rows.items():
        start, small, large = (by_size[n] for n in (SMALLEST, sizes[0], sizes[-1]))
        factor = sizes[-1] / sizes[0]
        slope = exponent(small.processor, large.processor, start.processor, factor)
        wall = exponent(small.wall, large.wall, start.wall, factor)
        peak = max(cost.gib for cost in by_size.values())
        failed |= slope > EXPONENT or peak > GIB
        print(
            f"{step}: from {sizes[0]:,} to {sizes[-1]:,} nodes processor time grows with exponent "
            f"{slope:.2f} (at most {EXPONENT}), wall time with {wall:.2f}; peak {peak:.1f} GiB "
            f"(at most {GIB})"
        )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
