"""What parties answer while FedSage+ mends their graphs: some of one process, or one alone.

The conversation is :func:`fedcover.algorithm.fedsage.mend`. Training follows a schedule that all
know, ``warm_up`` epochs before the first exchange and ``local_epochs`` after each: a request that
comes again, after a crash say, finds its epochs done, and gets the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedcover import fixed_point
from fedcover.conformal.protocol import Message
from fedcover.party.neighgen.exchange import BITS, answering_rows, noisy_inputs, summed_gradients
from fedcover.party.neighgen.model import Generator
from fedcover.party.neighgen.program import NeighGens
from fedcover.training.plan import Progress

if TYPE_CHECKING:
    from fedcover.party.party import Party

PROGRAM, MENDED, ROWS = "neighgen", "mended", "answering rows"  # in what a party has made
STAGE = "generator fedsage+"


def generators(
    parties: Sequence[Party], round_: int, queries: Sequence[Message], report: Progress
) -> list[Message]:
    """Train until an exchange: every party's generator and latent means."""
    settings = parties[0].config.neighgen
    epochs = settings.warm_up + round_ * settings.local_epochs
    program = _program(parties)
    program.train(epochs, queries)
    report(STAGE, round_, settings.rounds)
    return program.sent()


def gradients(parties: Sequence[Party], round_: int, query: Message) -> Message:
    """The sum over these parties, all of one repetition, of what they find for each generator."""
    settings, seed = parties[0].config.neighgen, parties[0].data.seed
    for party in parties:
        if ROWS not in party.made:
            rng = np.random.default_rng([*party.key, 0x7A46])
            party.made[ROWS] = answering_rows(party.graph.x, settings, rng)
    owner = query["owner"]
    found = summed_gradients(
        Generator.from_arrays(query),
        noisy_inputs(query["means"], owner, settings.most, seed, round_),
        np.unique(owner),
        {party.number: party.made[ROWS] for party in parties},
    )
    return {
        name: fixed_point.encode(tensor.numpy(), BITS) for name, tensor in found._asdict().items()
    }


def mend(
    parties: Sequence[Party], _round: int, queries: Sequence[Message], report: Progress
) -> list[Message]:
    """Train to the end; every party keeps its mended graph and says nothing."""
    settings = parties[0].config.neighgen
    epochs = settings.warm_up + settings.rounds * settings.local_epochs
    program = _program(parties)
    program.train(epochs, queries)
    for party, graph in zip(parties, program.mended(), strict=True):
        party.made[MENDED] = graph
    if len(parties) > 1:  # a site that is started again makes its graph anew from its program
        del parties[0].made[PROGRAM]
    report(STAGE, settings.rounds, settings.rounds)
    return [{} for _ in parties]


def _program(parties: Sequence[Party]) -> NeighGens:
    """The program of these parties, begun if it is not under way."""
    made = parties[0].made
    if PROGRAM not in made:
        graphs, keys = [party.graph for party in parties], [party.key for party in parties]
        made[PROGRAM] = NeighGens(graphs, keys, parties[0].config.neighgen)
    program: NeighGens = made[PROGRAM]
    return program
