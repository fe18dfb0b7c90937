"""NeighGen, FedSage+'s generator of missing neighbours (Zhang et al., NeurIPS 2021).

Here is what parties of one process answer to :func:`fedcover.algorithm.fedsage.mend`. All know the
schedule, ``warm_up`` epochs before the first exchange and ``local_epochs`` after each: a request
that comes again, after a crash say, finds its epochs done, and gets the same answer.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedcover import fixed_point
from fedcover.config import NeighGenSettings
from fedcover.conformal.protocol import Message
from fedcover.errors import DataError
from fedcover.models.gnn import WEIGHTS, arrays_of
from fedcover.party.neighgen import generator
from fedcover.party.neighgen.program import NeighGens
from fedcover.plans import MEND
from fedcover.training.plan import PartyGraph, Progress, Rows

if TYPE_CHECKING:
    from fedcover.party.party import Party

MENDED = "mended"  # in what a party has made
STAGE = "generator fedsage+"


def generators(
    parties: "Sequence[Party]", round_: int, queries: Sequence[Message], report: Progress
) -> list[Message]:
    """Train until an exchange: every party's generator and latent means."""
    settings, program = parties[0].config.neighgen, _program(parties)
    program.train(_epochs(settings, round_), queries)
    report(STAGE, round_, settings.rounds)
    return program.sent()


def gradients(parties: "Sequence[Party]", round_: int, queries: Sequence[Message]) -> Message:
    """The sum over these parties, all of one repetition, of what they find for each generator."""
    query = queries[0]
    settings, seed, owner = parties[0].config.neighgen, parties[0].data.seed, query["owner"]
    found = generator.summed_gradients(
        generator.Generator(*(torch.from_numpy(np.array(query[name])) for name in WEIGHTS)),
        generator.noisy_inputs(query["means"], owner, settings.most, seed, round_),
        np.unique(owner),
        {party.number: _answering_rows(party) for party in parties},
    )
    named = arrays_of(found).items()
    return {name: fixed_point.encode(array, generator.BITS) for name, array in named}


def _answering_rows(party: "Party") -> Rows:
    def make() -> Rows:
        rng = np.random.default_rng([*party.data.key, 0x7A46])
        return generator.answering_rows(party.graph.x, party.config.neighgen, rng)

    return party.once("answering rows", make)


def mend(
    parties: "Sequence[Party]", _round: int, queries: Sequence[Message], report: Progress
) -> list[Message]:
    """Train to the end; every party keeps its mended graph and says nothing."""
    settings, program = parties[0].config.neighgen, _program(parties)
    program.train(_epochs(settings, settings.rounds), queries)
    for party, graph in zip(parties, program.mended(), strict=True):
        party.made[MENDED] = graph
    if len(parties) > 1:  # a site remembers its program, and can mend its graph once more
        del parties[0].training[MEND]
    report(STAGE, settings.rounds, settings.rounds)
    return [{} for _ in parties]


def mended(party: "Party") -> PartyGraph:
    """The graph that :func:`mend` made; a site that was started again makes it anew."""

    def make() -> PartyGraph:
        state, settings = party.recall(MEND), party.config.neighgen
        if state is None or int(state["epochs"]) < _epochs(settings, settings.rounds):
            raise DataError("This party has not mended its graph; the coordinator must ask first.")
        return _program([party]).mended()[0]

    return party.once(MENDED, make)


def _epochs(settings: NeighGenSettings, round_: int) -> int:
    """That are trained before an exchange."""
    return settings.warm_up + round_ * settings.local_epochs


def _program(parties: "Sequence[Party]") -> NeighGens:
    """The program of these parties: under way, as it was remembered, or begun."""
    first = parties[0]
    if MEND not in first.training:
        graphs, keys = [party.graph for party in parties], [party.data.key for party in parties]
        program = NeighGens(graphs, keys, first.config.neighgen)
        if (state := first.recall(MEND)) is not None:
            program.restore(state)
        first.training[MEND] = program
    found: NeighGens = first.training[MEND]
    return found
