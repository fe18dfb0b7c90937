"""Speed and memory of the in-process engine against the one-after-another PyG reference.

Both train the same clients, model, rounds, local epochs and evaluation with the same number of
threads, each in a process of its own; the ratio of their times is the result. `make bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

# graph, clients, rounds, seeds trained together
CASES = [
    ("cora", 10, 50, 1),
    ("cora", 20, 50, 1),
    ("cora", 10, 50, 5),
    ("citeseer", 10, 50, 1),
    ("pubmed", 10, 10, 1),
    ("computers", 10, 10, 1),
]
LOCAL_EPOCHS = 3
REPEATS = {"inprocess": 5, "reference": 2}


def measure(graph: str, clients: int, rounds: int, seeds: int, engine: str, threads: int) -> dict:
    """Median seconds of a training, and the process's peak memory, in a fresh process."""
    job = json.dumps([graph, clients, rounds, seeds, engine])
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(
        [sys.executable, __file__, "--job", job],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def work(graph: str, clients: int, rounds: int, seeds: int, engine: str) -> dict:
    import fedcover
    from fedcover.run.methods import cut
    from fedcover.simulation.repetition import prepare
    from fedcover.federation import InProcess, Plan, Reference

    data = fedcover.load(graph)
    config = fedcover.Config(clients=clients)
    federations = [cut(prepare(data, config, s)).federation for s in range(seeds)]
    plan = Plan("gcn", len(data.label_names), rounds=rounds, local_epochs=LOCAL_EPOCHS)
    runner = InProcess() if engine == "inprocess" else Reference()
    runner.train(federations, Plan("gcn", len(data.label_names), rounds=1))  # warm up
    totals = []
    for _ in range(REPEATS[engine]):
        began = time.perf_counter()
        runner.train(federations, plan)
        totals.append(time.perf_counter() - began)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "seconds": statistics.median(totals),
        "spread": max(totals) - min(totals),
        "mib": memory,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--threads", default="1,2", help="thread counts to measure")
    parser.add_argument("--only", help="measure this graph only")
    arguments = parser.parse_args()
    if arguments.job:
        print(json.dumps(work(*json.loads(arguments.job))))
        return

    from fedcover.errors import DataError
    from fedcover.graphs import load

    print(f"FedAvg, GCN hidden 64, dropout 0.5, {LOCAL_EPOCHS} local epochs, validation each round")
    print(
        "| graph | K | seeds | rounds | threads | PyG loop, s | fedcover, s | ratio "
        "| µs a client step | peak MiB (loop / ours) |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for graph, clients, rounds, seeds in CASES:
        if arguments.only not in (None, graph):
            continue
        try:
            load(graph)
        except DataError as error:
            print(f"| {graph} | {clients} | skipped: {error} |")
            continue
        for threads in map(int, arguments.threads.split(",")):
            case = (graph, clients, rounds, seeds)
            ours = measure(*case, "inprocess", threads)
            loop = measure(*case, "reference", threads)
            steps = clients * seeds * rounds * LOCAL_EPOCHS
            print(
                f"| {graph} | {clients} | {seeds} | {rounds} | {threads} | {loop['seconds']:.2f} "
                f"| {ours['seconds']:.3f} | **{loop['seconds'] / ours['seconds']:.1f}** "
                f"| {1e6 * ours['seconds'] / steps:.0f} "
                f"| {loop['mib']:.0f} / {ours['mib']:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
