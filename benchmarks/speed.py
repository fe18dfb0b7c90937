"""Speed and memory of the stacked carrier against one party after another with PyG's layers.

Both train the same parties, model, rounds, local epochs and evaluation with the same number of
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
REPEATS = {"stacked": 5, "loopback": 2}


def measure(graph: str, clients: int, rounds: int, seeds: int, carrier: str, threads: int) -> dict:
    """Median seconds of a training, and the process's peak memory, in a fresh process."""
    job = json.dumps([graph, clients, rounds, seeds, carrier])
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(
        [sys.executable, __file__, "--job", job],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def work(graph: str, clients: int, rounds: int, seeds: int, carrier: str) -> dict:
    import fedcover
    from fedcover.algorithm.fedavg import fedavg
    from fedcover.carriers.loopback import Loopback
    from fedcover.carriers.stacked import Stacked
    from fedcover.simulation.repetition import federation, prepare
    from fedcover.training.plan import Plan
    from fedcover.training.reference import Reference

    data = fedcover.load(graph)
    config = fedcover.Config(clients=clients)
    repetitions = [prepare(data, config, s) for s in range(seeds)]

    def train(rounds: int) -> float:
        plan = Plan("gcn", len(data.label_names), rounds=rounds, local_epochs=LOCAL_EPOCHS)
        federations = [federation(one, config) for one in repetitions]
        began = time.perf_counter()
        if carrier == "stacked":
            talks = [fedavg("fed/shared", plan) for _ in federations]
            Stacked([one.carried for one in federations]).carry(talks)
        for one in federations if carrier == "loopback" else ():
            for party in one.parties:
                party.engine, party.plan = Reference, lambda _part: plan
            Loopback(one.parties).carry(fedavg("fed/shared", plan))
        return time.perf_counter() - began

    train(1)  # warm up
    totals = [train(rounds) for _ in range(REPEATS[carrier])]
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
            ours = measure(*case, "stacked", threads)
            loop = measure(*case, "loopback", threads)
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
