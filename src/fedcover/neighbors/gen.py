"""Gen: prototypes of the other clients become neighbours (paper, sections 5.2 and 5.3).

1. Every client trains a VAE on its training features and sends k-means centres of what it
   reconstructs, for every number M that is to be tried.
2. The server passes each client the others' prototypes.
3. A VGAE is trained federated over the client graphs with the prototypes as isolated nodes.
4. Each client links its nodes to prototypes by the VGAE's inner products.

No label is used, and calibration and test nodes are treated alike. One VGAE serves all M: the
prototypes have no links while it is trained, and never serve as examples of nodes without links.
It sees those of the largest M; the others are averages of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fedcover.errors import DataError
from fedcover.federation import Engine, Federation, PartyGraph
from fedcover.federation.ledger import Ledger
from fedcover.graphs.labels import NO_LABEL
from fedcover.models import Weights
from fedcover.neighbors.augment import append_rows, augment, mean_entries, trimmed
from fedcover.neighbors.links import choose_links
from fedcover.neighbors.prototypes import client_prototypes
from fedcover.neighbors.settings import GenSettings
from fedcover.neighbors.vaes import is_binary
from fedcover.privacy import Privacy
from fedcover.privacy.dp_vae import noise_note
from fedcover.training.plan import Features, OnRound


@dataclass(frozen=True)
class Received:
    """What one client has got from the others for one M, and how it would link it."""

    features: Features  # (m, d), trimmed
    owner: NDArray[np.int64]  # the client that each prototype comes from
    latent: NDArray[np.float32]  # (m, latent): where the VGAE puts the prototypes
    local: NDArray[np.float32]  # (n, latent): and the client's own nodes


@dataclass(frozen=True)
class Generated:
    """One federation's prototypes at every client, by M."""

    federation: Federation
    received: dict[int, list[Received]]
    settings: GenSettings
    silent: list[int]  # clients that sent nothing, since they have too few training nodes
    noise: str | None = None  # what there is to say about privacy's noise

    def augmented(self, prototypes: int, share: float) -> Federation:
        """The federation over the augmented graphs for one M and one p."""
        clients = [
            augment(client, got.features, self._links(got, share), self.settings.link_weight)
            for client, got in zip(self.federation.clients, self.received[prototypes], strict=True)
        ]
        return replace(self.federation, clients=clients)

    def _links(self, got: Received, share: float) -> NDArray[np.int64]:
        return choose_links(got.local, got.latent, share, self.settings.linking)


def generate(
    federations: Sequence[Federation],
    settings: GenSettings,
    engine: Engine,
    ledgers: Sequence[Ledger],
    *,
    privacy: Privacy | None = None,
    on_client: Callable[[int], None] | None = None,
    on_round: OnRound | None = None,
) -> list[Generated]:
    """Prototypes and links for every client of every federation; ``on_client`` counts the VAEs,
    ``on_round`` the VGAE's rounds."""
    exchanges = _exchange(federations, settings, privacy, ledgers, on_client)
    joined = [
        replace(federation, clients=list(map(unlinked, federation.clients, exchange)))
        for federation, exchange in zip(federations, exchanges, strict=True)
    ]
    trained = engine.train(joined, settings.link_plan, on_round=on_round)
    results = []
    for federation, exchange, model, ledger in zip(
        federations, exchanges, trained, ledgers, strict=True
    ):
        ledger.record_weights("VGAE weights", model.weights[0], len(exchange), settings.link_rounds)
        if not all(np.isfinite(outputs).all() for outputs in model.logits):
            raise DataError("The link predictor diverged; scale the features or lower link_lr.")
        by_client = [
            received_by(got, outputs[: client.own], model.weights[0], settings.link_latent)
            for client, got, outputs in zip(federation.clients, exchange, model.logits, strict=True)
        ]
        received = {m: [client[m] for client in by_client] for m in settings.prototypes}
        silent, noise = _silent(federation, settings.vae.min_cluster), None
        if privacy is not None and privacy.active:
            noise = noise_note(federation.clients, settings.vae, privacy)
            silent = [] if privacy.covered else silent
        results.append(Generated(federation, received, settings, silent, noise))
    return results


def _silent(federation: Federation, min_cluster: int) -> list[int]:
    return [k for k, c in enumerate(federation.clients) if len(c.train) < min_cluster]


Got = dict[int, tuple[Features, NDArray[np.int64]]]  # by M: trimmed features, owners


def _exchange(
    federations: Sequence[Federation],
    settings: GenSettings,
    privacy: Privacy | None,
    ledgers: Sequence[Ledger],
    on_client: Callable[[int], None] | None,
) -> list[list[Got]]:
    """Steps 1 and 2: for each federation and client, what the others sent."""
    clients = [client for federation in federations for client in federation.clients]
    keys = [(f.seed, number) for f in federations for number in range(len(f.clients))]
    vae = settings.vae
    if vae.binary is None:  # a property of the columns, on which the parties agree
        vae = replace(vae, binary=all(is_binary(client.x) for client in clients))
    sent = iter(client_prototypes(clients, keys, vae, settings.prototypes, privacy, on_client))
    exchanges = []
    for federation, ledger in zip(federations, ledgers, strict=True):
        mine = [next(sent) for _ in federation.clients]
        exchanges.append(
            [
                {m: others(client, [s[m] for s in mine], k) for m in settings.prototypes}
                for k, client in enumerate(federation.clients)
            ]
        )
        for k, prototypes in enumerate(mine):
            for m, centres in prototypes.items():
                ledger.record("prototypes", "up", k, 0, centres.shape, centres.nbytes)
                shape = (sum(len(s[m]) for s in mine) - len(centres), centres.shape[1])
                bytes_ = shape[0] * shape[1] * centres.itemsize
                ledger.record("prototypes", "down", k, 0, shape, bytes_)
    return exchanges


def others(
    client: PartyGraph, sent: Sequence[NDArray[np.float32]], number: int
) -> tuple[Features, NDArray[np.int64]]:
    """The other clients' prototypes, and whose each is.

    The receiver trims them to as many features as its own nodes have on average: a centre is a
    mean of many nodes and has nearly all features a little, which no node has.
    """
    owner = np.repeat(np.arange(len(sent)), [len(centres) for centres in sent])
    rows = np.concatenate(sent)[owner != number]
    return trimmed(rows, mean_entries(sp.csr_array(client.x))), owner[owner != number]


def unlinked(client: PartyGraph, got: Got) -> PartyGraph:
    """The client's graph with prototypes as isolated nodes, and without validation nodes."""
    prototypes, _ = got[max(got)]
    count = prototypes.shape[0]
    return replace(
        client,
        x=append_rows(client.x, prototypes),
        y=np.concatenate([client.y, np.full(count, NO_LABEL)]),
        valid=np.empty(0, dtype=np.int64),
        generated=count,
    )


def received_by(
    got: Got, outputs: NDArray[np.float32], weights: Weights, latent: int
) -> dict[int, Received]:
    """What step 4 needs at one client; ``outputs`` are the VGAE's for its own nodes."""
    local = outputs[:, :latent]
    return {
        m: Received(features, owner, isolated(features, weights)[:, :latent], local)
        for m, (features, owner) in got.items()
    }


def isolated(features: Features, weights: Weights) -> NDArray[np.float32]:
    """The GCN's outputs for nodes without edges, whose only neighbour is themselves."""
    first, first_bias, second, second_bias = (tensor.numpy() for tensor in weights.tensors())
    hidden = np.maximum(features @ first + first_bias, 0)
    outputs: NDArray[np.float32] = hidden @ second + second_bias
    return outputs
