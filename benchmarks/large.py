"""Time and memory of ``fedcover inspect``, ``run`` and ``predict`` from 10⁴ to 10⁶ nodes.

A graph of n nodes has 10·n edges, 16 features and 5 classes; it is written as Parquet, as an own
graph would be. Nodes live in communities of about 500, and four edges in five stay inside, so that
there is something to cut along and neighbours tend to share a label (edge homophily about 0.5). A
community's size does not grow with n: the larger graphs are more of the same, and only then does
growth say something about the program. Node numbers are shuffled, so that no order helps.

Each step is a process of its own. It first does the same on a graph of 200 nodes, so that imports
and what is done once in a process (seconds, and no two times the same) are counted apart, as
``start-up``; then it is timed: wall and processor time (all threads) of the quickest of a few
repetitions (one at 10⁶), and the peak memory of the process (resident set). The exponent is the
slope of log time against log n between the first and the last size; that of the processor time
decides, because on a shared machine the wall clock also counts what others do.

    python benchmarks/large.py                       # 10⁴, 10⁵, 10⁶; 20 rounds; some 5 minutes
    python benchmarks/large.py --sizes 10000,100000 --rounds 100
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
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
HEADINGS = ("start-up s", "wall s", "processor s", "peak GiB")
REPEATS = 4
REPEATED_BELOW = 1_000_000  # nodes


def write_graph(folder: Path, nodes: int, *, clients: int, seed: int = 0) -> None:
    """Write ``nodes.parquet`` and ``edges.parquet``."""
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

    columns: dict[str, object] = {"id": np.arange(nodes), "label": y, "client": home % clients}
    columns |= {f"f{j}": x[:, j] for j in range(FEATURES)}
    folder.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(columns).write_parquet(folder / "nodes.parquet")
    edges = pl.DataFrame({"source": source, "target": target})
    edges.write_parquet(folder / "edges.parquet")


class Cost(NamedTuple):
    """What one command took."""

    start: float
    wall: float
    processor: float
    gib: float


def work(commands: list[list[str]]) -> None:
    """In a process of its own: do the first command, then time each of the others."""
    from fedcover.cli import app

    began, times = time.perf_counter(), []
    for arguments in commands:
        before = time.perf_counter(), time.process_time()
        with Path(os.devnull).open("w") as null, redirect_stdout(null), redirect_stderr(null):
            app(arguments, prog_name="fedcover", standalone_mode=False)
        times.append((time.perf_counter() - before[0], time.process_time() - before[1]))
    timed = times[1:]
    start = time.perf_counter() - began - sum(wall for wall, _ in timed)
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    wall, processor = (min(column) for column in zip(*timed, strict=True))
    print(json.dumps([start, wall, processor, gib]))


def measure(warm_up: list[str], command: list[str], threads: int, repeats: int) -> Cost:
    """The cost of one ``fedcover`` command."""
    commands = json.dumps([warm_up, *[command] * repeats])
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    process = subprocess.run(
        [sys.executable, __file__, "--work", commands],
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    return Cost(*json.loads(process.stdout))


def steps(scratch: Path, nodes: int, options: argparse.Namespace) -> dict[str, list[str]]:
    """The commands for a graph of this size, in their order."""
    folder, out, sets = (str(scratch / f"{name}-{nodes}") for name in ("graph", "run", "sets"))
    partition = ["--partition", "given"]
    if not options.given:
        partition = ["--partition", "metis", "--clients", str(options.clients)]
    training = ["--methods", "fed", "--seeds", "1", "--rounds", str(options.rounds)]
    return {
        "inspect": ["inspect", folder, *partition],
        "run": ["run", folder, *partition, *training, "--out", out],
        "predict": ["predict", out, folder, "--alpha", "0.15", "--out", f"{sets}.parquet"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="10000,100000,1000000", help="numbers of nodes")
    parser.add_argument("--rounds", type=int, default=20, help="of training; run's own is 100")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--given", action="store_true", help="a client column in place of METIS")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(json.loads(options.work))
    sizes = [int(size) for size in options.sizes.split(",")]
    rows: dict[str, dict[int, Cost]] = {}
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        print(" ".join(f"{word:>11}" for word in ("nodes", "step", *HEADINGS)))
        write_graph(scratch / f"graph-{SMALLEST}", SMALLEST, clients=options.clients)
        small = steps(scratch, SMALLEST, options)
        for nodes in sizes:
            write_graph(scratch / f"graph-{nodes}", nodes, clients=options.clients)
            repeats = REPEATS if nodes < REPEATED_BELOW else 1
            for step, command in steps(scratch, nodes, options).items():
                cost = measure(small[step], command, options.threads, repeats)
                rows.setdefault(step, {})[nodes] = cost
                numbers = " ".join(f"{value:>11.2f}" for value in cost)
                print(f"{nodes:>11,} {step:>11} {numbers}", flush=True)

    failed = False
    for step, by_size in rows.items():
        first, last = by_size[sizes[0]], by_size[sizes[-1]]
        factor = math.log(sizes[-1] / sizes[0])
        slope = math.log(last.processor / first.processor) / factor
        wall = math.log(last.wall / first.wall) / factor
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
