"""What an honest owner can work out from the sums of +neighbours where features are 0 or 1.

A sum of 0 says that no far end has the feature, and one as large as the row that all have it; what
is known of one row narrows others down. This goes on until nothing changes: bounds alone, so more
can be known to whoever tries harder. The rows are those that parties ask for, m = 3, seed 0; what
follows is checked against the truth. The table is in docs/neighbours.md.

    python benchmarks/worked_out.py [GRAPH]
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import scipy.sparse as sp

import fedcover
from fedcover.config import Config
from fedcover.graphs.assemble import feature_matrix
from fedcover.party import neighbours
from fedcover.plans import KEYS
from fedcover.simulation.repetition import federation, prepare

CUTS = [(2, "random"), (3, "random"), (5, "random"), (10, "random"), (10, "label-skew"),
        (10, "metis")]  # fmt: skip


def bounds(sums: Any, total: Any) -> tuple[Any, Any]:
    """The least and the largest that every far end's features can be; ``total`` is sums @ them."""
    low, high = np.zeros((2, sums.shape[1], total.shape[1]))
    high += 1
    while True:
        none = (sums.T @ (total == sums @ low)) > 0  # what is not known to be 1 is 0
        every = (sums.T @ (total == sums @ high)) > 0
        before, high = high, np.where(none, low, high)
        low, previous = np.where(every & ~none, high, low), low
        if np.array_equal(before, high) and np.array_equal(previous, low):
            return low, high


def worked_out(graph: Any, clients: int, cut: str) -> dict[str, int]:
    """Over all owners: rows, far ends, those of which all is known, ones, and those known."""
    config = Config(
        clients=clients, partition=cut, cut_edges="known", matching="open", seeds=1,
        methods=("fed+neighbours",),
    )  # fmt: skip
    x = sp.csr_array(feature_matrix(graph)) > 0
    counts = dict.fromkeys(("rows", "far ends", "known whole", "ones", "known ones"), 0)
    for party in federation(prepare(graph, config, 0), config).parties:
        party.tell(KEYS, {"keys": np.arange(clients)})
        (row, adds), links = neighbours._rows(party), party.data.links
        used = adds & (row[links.node] >= 0)
        far, place = np.unique(links.far[used], return_inverse=True)
        at = (row[links.node[used]], place)
        sums = sp.csr_array((np.ones(len(place)), at), shape=(row.max() + 1, len(far)))
        true = x[far].toarray().astype(float)
        low, high = bounds(sums, sums @ true)
        known = low == high
        if not np.array_equal(low[known], true[known]):
            raise AssertionError("what was worked out is wrong")
        found = (sums.shape[0], len(far), known.all(axis=1).sum(), true.sum(), true[known].sum())
        for name, count in zip(counts, found, strict=True):
            counts[name] += int(count)
    return counts


def main() -> None:
    """A table."""
    graph = fedcover.load(sys.argv[1] if len(sys.argv) > 1 else "cora")
    print("| K, partition | rows | far ends, by owner | known whole | of their ones, known |")
    print("|---|--:|--:|--:|--:|")
    for clients, cut in CUTS:
        found = worked_out(graph, clients, cut)
        whole, ends = found["known whole"], found["far ends"]
        share = found["known ones"] / max(found["ones"], 1)
        print(f"| {clients}, {cut} | {found['rows']:,} | {ends:,} | {whole:,} ({whole / ends:.1%}) "
              f"| {share:.0%} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
