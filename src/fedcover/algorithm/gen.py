"""Gen as the coordinator sees it: prototypes pass through, a link predictor is trained, M and p are
chosen by the pooled validation loss (paper, sections 5.2, 5.3 and 6.1).

Every cell of the grid of M and p is trained for a few rounds; the one with the lowest loss is then
trained in full. No calibration or test label is seen.
"""

from itertools import product
from typing import Any

import numpy as np

from fedcover.algorithm import checks
from fedcover.algorithm.fedavg import fedavg, rounded, screened
from fedcover.algorithm.requests import Ask, Census, Conversation, Tell, gathered, once
from fedcover.config import Config, Recipe
from fedcover.conformal.protocol import Message
from fedcover.plans import LINKER, PROTOTYPES, cell_part, count_links, link_plan, plan_of

Cell = tuple[int, float]


def linker(config: Config, features: int) -> Conversation[Message]:
    """The parties' prototypes, told to all of them, and the VGAE that links them."""
    numbers = config.gen.prototypes
    rows = checks.Arrays({str(m): (np.float32, (m, features)) for m in numbers}, fewer=True)

    def ask() -> Conversation[Message]:
        replies = yield Ask(PROTOTYPES, "prototypes", check=rows)
        sent = {}
        for m in numbers:
            sent[f"rows.{m}"], sent[f"owner.{m}"] = gathered(replies, str(m))
        return sent

    sent = yield from once(PROTOTYPES, ask())
    yield Tell(PROTOTYPES, sent)
    yield from fedavg(LINKER, link_plan(config.gen))
    return sent


def choose_cell(
    recipe: Recipe, config: Config, classes: int, census: Census, sent: Message
) -> Conversation[dict[str, Any]]:
    """Choose M and p for the model that is trained after; without validation nodes the first."""
    equal = _first_equal(config, census, sent)
    cells = list(dict.fromkeys(equal.values()))
    chosen, found = cells[0], {}
    if len(cells) > 1:
        parts = {cell: cell_part(recipe, *cell) for cell in cells}
        plans = {part: plan_of(config, classes, part) for part in parts.values()}
        losses = yield from screened(plans)
        chosen = min(cells, key=lambda cell: losses[parts[cell]])
        found["grid"] = [
            {"prototypes": m, "share": p, "valid_loss": rounded(losses[parts[first]])}
            for (m, p), first in equal.items()
        ]
    yield Tell(f"{recipe.shared}/cell", {"cell": np.array(chosen)})
    return {"prototypes": chosen[0], "share": chosen[1], **found}


def _first_equal(config: Config, census: Census, sent: Message) -> dict[Cell, Cell]:
    """For every cell of the grid, the first one that gives the same graphs; only it is trained.

    Shares that round to the same number of links do, and so do two M of which merging left the same
    prototypes: those of a smaller M are unions of the larger one's, so as many are the same ones.
    """
    gen, nodes = config.gen, census.of("nodes")
    first: dict[tuple[tuple[int, int], ...], Cell] = {}
    found: dict[Cell, Cell] = {}
    for m, share in product(gen.prototypes, gen.shares):
        others = {party: int((sent[f"owner.{m}"] != party).sum()) for party in sorted(nodes)}
        links = (count_links(gen.linking, nodes[k], n, share) for k, n in others.items())
        graphs = tuple(zip(others.values(), links, strict=True))
        found[m, share] = first.setdefault(graphs, (m, share))
    return found


def silence(census: Census, at_least: int) -> str:
    """A sentence about parties that are too small to send prototypes; "" if there is none."""
    silent = [party for party, nodes in sorted(census.of("train").items()) if nodes < at_least]
    if not silent:
        return ""
    names = ", ".join(map(str, silent))
    who = f"client {names} has" if len(silent) == 1 else f"clients {names} have"
    return (
        f"gen: {who} fewer than {at_least} training nodes and sends no prototypes, since they "
        "would be nearly real nodes."
    )
