"""Gen at a party: its prototypes, and its graph with those of the others as neighbours.

1. Every party trains a VAE on its training features and sends k-means centres of what it
   reconstructs, for every number M that is to be tried (paper, section 5.2).
2. It receives the others' prototypes and trims them to its own nodes' length.
3. A VGAE is trained over all parties with the prototypes as isolated nodes (section 5.3): those of
   the largest M, of which the others are averages, so that one VGAE serves all M.
4. It links its nodes to prototypes by the VGAE's inner products.

No label is used, and calibration and test nodes are treated alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from fedcover.conformal.protocol import Message
from fedcover.errors import DataError
from fedcover.graphs.labels import NO_LABEL
from fedcover.models import Weights
from fedcover.party.augment import append_rows, augment, choose_links, mean_entries, trimmed
from fedcover.party.prototypes import all_prototypes
from fedcover.plans import LINKER, PROTOTYPES
from fedcover.training.plan import Features, Index, PartyGraph, Progress, Rows

if TYPE_CHECKING:
    from fedcover.party.party import Party


@dataclass(frozen=True)
class Received:
    """What a party has got from the others for one M, and how it would link it."""

    features: Features  # (m, d), trimmed
    owner: Index  # the party that each prototype comes from
    latent: Rows  # (m, latent): where the VGAE puts the prototypes
    local: Rows  # (n, latent): and the party's own nodes


Got = dict[int, tuple[Features, Index]]  # by M: trimmed features, owners


def prototypes(
    parties: "Sequence[Party]", _round: int, _queries: Sequence[Message], report: Progress
) -> list[Message]:
    """What each party sends: for each M at most M rows of features."""
    config, vae = parties[0].config, parties[0].config.gen.vae
    if vae.binary is None:  # a property of the columns, on which the parties agree
        vae = replace(vae, binary=not parties[0].data.numeric.any())
    sent = all_prototypes(
        [party.graph.x[np.sort(party.graph.train)] for party in parties],
        [party.data.key for party in parties],
        vae,
        config.gen.prototypes,
        config.privacy,
        [party.data.secret for party in parties],
        lambda done: report("VAEs gen", done, len(parties)),
    )
    return [{str(m): rows for m, rows in own.items()} for own in sent]


def chosen(party: "Party", recipe: str) -> PartyGraph:
    """The party's graph with the M and the p that the parties have chosen for this recipe."""

    def make() -> PartyGraph:
        prototypes, share = party.knows(f"{recipe}/cell")["cell"]
        return augmented(party, int(prototypes), float(share))

    return party.once(("graph", recipe), make)


def augmented(party: "Party", prototypes: int, share: float) -> PartyGraph:
    """The party's graph with generated neighbours for one M and one p; its own where p is 0."""
    if not share:
        return party.graph
    settings, one = party.config.gen, received(party)[prototypes]
    links = choose_links(one.local, one.latent, share, settings.linking)
    return augment(party.graph, one.features, links, settings.link_weight)


def received(party: "Party") -> dict[int, Received]:
    """What the party got, by M, and where the link predictor puts it."""

    def make() -> dict[int, Received]:
        outputs, weights = party.logits(LINKER), party.weights[LINKER]
        if not (np.abs(outputs) < 1e18).all():  # also NaN; products are beyond single precision
            raise DataError("The link predictor diverged; scale the features or lower link_lr.")
        latent = slice(party.config.gen.link_latent)
        return {
            m: Received(rows, owner, isolated(rows, weights)[:, latent], outputs[:, latent])
            for m, (rows, owner) in got(party).items()
        }

    return party.once("received", make)


def got(party: "Party") -> Got:
    """The others' prototypes, by M, and whose each is.

    The receiver trims them to as many features as its own nodes have on average: a centre is a
    mean of many nodes and has nearly all features a little, which no node has.
    """

    def make() -> Got:
        sent, entries = party.knows(PROTOTYPES), mean_entries(sp.csr_array(party.graph.x))
        others = {m: sent[f"owner.{m}"] != party.number for m in party.config.gen.prototypes}
        return {
            m: (trimmed(sent[f"rows.{m}"][mine], entries), sent[f"owner.{m}"][mine])
            for m, mine in others.items()
        }

    return party.once("got", make)


def unlinked(party: "Party") -> PartyGraph:
    """The party's graph with prototypes as isolated nodes, and without validation nodes."""
    graph, by_count = party.graph, got(party)
    prototypes, _ = by_count[max(by_count)]
    count = prototypes.shape[0]
    return replace(
        graph,
        x=append_rows(graph.x, prototypes),
        y=np.concatenate([graph.y, np.full(count, NO_LABEL)]),
        valid=graph.valid[:0],
        generated=count,
    )


def isolated(features: Features, weights: Weights) -> Rows:
    """The GCN's outputs for nodes without edges, whose only neighbour is themselves."""
    first, first_bias, second, second_bias = (tensor.numpy() for tensor in weights)
    hidden = np.maximum(features @ first + first_bias, 0)
    outputs: Rows = hidden @ second + second_bias
    return outputs
