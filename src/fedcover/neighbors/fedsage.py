"""FedSage+ (Zhang et al., NeurIPS 2021): every client's graph mended by a generator of neighbours.

Each client learns from neighbours that it hides itself (:mod:`~fedcover.neighbors.impair`) and from
the other clients' replies (:mod:`~fedcover.neighbors.exchange`). FedAvg GraphSAGE on the mended
graphs is the method ``fedsage+``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
import torch

from fedcover.errors import UsageError
from fedcover.federation import Federation, PartyGraph
from fedcover.federation.ledger import Ledger
from fedcover.neighbors.augment import augment, mean_entries, trimmed
from fedcover.neighbors.neighgen import NeighGenSettings
from fedcover.neighbors.neighgens import Learned, NeighGens
from fedcover.training.plan import Features, OnRound

TOGETHER = 30_000  # nodes trained in one program; more would only need more memory
BLOCK = 2_000_000  # generated values at once


@torch.no_grad()
def mend(
    federations: Sequence[Federation],
    settings: NeighGenSettings,
    ledgers: Sequence[Ledger],
    on_round: OnRound | None = None,
) -> list[Federation]:
    """The same federations with generated neighbours appended to every client's graph.

    ``ledgers[f]`` takes what the clients of federation f exchange. ``on_round`` is called with
    the number of exchanges that all federations have behind them.
    """
    if len(ledgers) != len(federations):
        raise UsageError(
            f"There are {len(ledgers)} ledgers, but must be {len(federations)}, one a federation."
        )
    mended: list[Federation] = []
    parts = _parts(federations)
    for p, part in enumerate(parts):

        def report(round_: int, done: int = p * settings.rounds) -> None:
            rounds, more = divmod(done + round_, len(parts))
            if on_round is not None and not more:
                on_round(rounds)

        start = len(mended)
        program = NeighGens(part, settings)
        program.train(ledgers[start : start + len(part)], report)
        for federation, learned in zip(part, program.results(), strict=True):
            clients = [
                _mended(client, mine, np.random.default_rng([federation.seed, k, 0x3E2D]))
                for k, (client, mine) in enumerate(zip(federation.clients, learned, strict=True))
            ]
            mended.append(Federation(clients, federation.seed))
    return mended


def _parts(federations: Sequence[Federation]) -> list[list[Federation]]:
    """Neighbouring federations in as large parts as are trained together."""
    parts: list[list[Federation]] = []
    room = 0
    for federation in federations:
        nodes = sum(client.nodes for client in federation.clients)
        if nodes > room:
            parts.append([])
            room = TOGETHER
        parts[-1].append(federation)
        room -= nodes
    return parts


def _mended(client: PartyGraph, learned: Learned, rng: np.random.Generator) -> PartyGraph:
    """The client with as many generated neighbours at each node as it is said to miss."""
    node = torch.repeat_interleave(learned.missing)
    if not len(node):
        return client
    low, high = _range(client.x)
    is_sparse, made = sp.issparse(client.x), []
    for rows in torch.tensor_split(node, -(-len(node) * client.x.shape[1] // BLOCK)):
        noise = rng.standard_normal((len(rows), learned.z.shape[1]), dtype=np.float32)
        inputs = learned.z[rows] + torch.from_numpy(noise)
        features = np.clip(learned.generator.generate(inputs[None])[0].numpy(), low, high)
        made.append(trimmed(features, mean_entries(client.x)) if is_sparse else features)
    stacked = sp.vstack(made, format="csr") if is_sparse else np.concatenate(made)
    return augment(client, stacked, np.stack([np.arange(len(node)), node.numpy()]))


def _range(x: Features) -> tuple[Features, Features]:
    """The least and the largest value: of each dense column, or of a sparse matrix as a whole.

    Columns of a sparse matrix are alike (words, say), and one that is empty here may be what the
    other clients' replies ask for.
    """
    if sp.issparse(x):
        return x.min(), x.max()
    return x.min(axis=0), x.max(axis=0)
