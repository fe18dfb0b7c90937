"""Divide a graph so that labels differ between clients, the usual federated benchmark.

Every label's nodes are spread over the clients by shares from a symmetric Dirichlet(β). Hsu, Qi
and Brown (2019, "Measuring the effects of non-identical data distribution for federated visual
classification") brought Dirichlet's β into use as the measure of skew; to draw the shares label by
label, and again until no client is too small, is from Yurochkin et al. (2019, "Bayesian
nonparametric federated learning of neural networks"), whose code besides gives no more to clients
that have an even share: left out here, so that shares stay Dirichlet's.
"""

import numpy as np
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover.errors import DataError
from fedcover.graphs.labels import NO_LABEL

DRAWS = 1000  # until every client has enough labelled nodes, or never
ENOUGH = 10  # labelled nodes, or a quarter of an even share if that is less


def label_skew(graph: Data, clients: int, seed: int, beta: float) -> NDArray[np.int64]:
    r"""A client for each node: of label c's :math:`n_c` nodes, client k has about
    :math:`n_c p_{ck}`, with :math:`(p_{c1}, …, p_{cK}) \sim \text{Dirichlet}(β, …, β)`.

    The smaller β, the more clients differ, in labels and in size. Nodes without a label are spread
    evenly at random. All shares are drawn again, at most 1,000 times, until every client has
    min(10, ⌊labelled / 4K⌋) labelled nodes, and at least one.
    """
    rng, y = np.random.default_rng([seed, 0x5E3A]), graph.y.numpy()
    labelled, unlabelled = np.flatnonzero(y != NO_LABEL), np.flatnonzero(y == NO_LABEL)
    totals = np.bincount(y[labelled], minlength=1)[:, None]
    least = max(min(ENOUGH, len(labelled) // (4 * clients)), 1)
    for _ in range(DRAWS):
        shares = rng.dirichlet(np.full(clients, beta), size=len(totals))
        ends = np.rint(shares[:, :-1].cumsum(axis=1) * totals)
        counts = np.diff(ends, axis=1, prepend=0, append=totals).astype(np.int64)
        if counts.sum(axis=0).min() >= least:
            break
    else:
        raise DataError(
            f"Partition 'label-skew' with beta {beta:g} left one of {clients} clients of "
            f"{graph.name} with fewer than {least} labelled nodes in each of {DRAWS:,} draws; take "
            "a larger beta or fewer clients."
        )
    client = np.empty(len(y), dtype=np.int64)
    order = rng.permutation(labelled)
    order = order[np.argsort(y[order], kind="stable")]  # label by label, random inside each
    client[order] = np.repeat(np.tile(np.arange(clients), len(totals)), counts.ravel())
    client[unlabelled] = rng.permutation(np.arange(len(unlabelled)) % clients)
    return client
