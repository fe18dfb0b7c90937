"""Gen as the coordinator sees it: prototypes pass through, a link predictor is trained, M and p are
chosen by the pooled validation loss (paper, sections 5.2, 5.3 and 6.1).

Every cell of the grid of M and p is trained for a few rounds; the one with the lowest loss is then
trained in full. Where p = 0 is among the shares, the grid has the cell "none", without generated
neighbours: its graphs are those of FedAvg. No calibration or test label is seen.
"""

from itertools import product
from typing import Any

import numpy as np

from fedcover.algorithm import checks
from fedcover.algorithm.fedavg import fedavg, rounded, screened
from fedcover.algorithm.requests import Ask, Census, Conversation, Tell, gathered, once
from fedcover.config import Config, GenSettings, Recipe
from fedcover.conformal.protocol import Message
from fedcover.plans import (
    LINKER,
    NO_NEIGHBOURS,
    PROTOTYPES,
    cell_part,
    count_links,
    link_plan,
    plan_of,
)

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
    """Choose M and p for the model that is trained after.

    Without validation nodes, the first with generated neighbours: whoever asks for Gen and has
    nothing to judge it by shall not get FedAvg under another name.
    """
    equal = _first_equal(config, census, sent)
    cells = sorted(dict.fromkeys(equal.values()), key=lambda cell: cell == NO_NEIGHBOURS)
    chosen, found = cells[0], {}
    if len(cells) > 1:
        parts = {cell: cell_part(recipe, *cell) for cell in cells}
        plans = {part: plan_of(config, classes, part) for part in parts.values()}
        losses = yield from screened(plans)
        chosen = min(cells, key=lambda cell: losses[parts[cell]])
        found["grid"] = [
            _named(cell) | {"valid_loss": rounded(losses[parts[first]])}
            for cell, first in equal.items()
        ]
    yield Tell(f"{recipe.shared}/cell", {"cell": np.array(chosen)})
    return {"prototypes": chosen[0], "share": chosen[1], **found}


def _named(cell: Cell) -> dict[str, Any]:
    """A cell as ``run.json`` has it."""
    name = {"cell": "none"} if cell == NO_NEIGHBOURS else {}
    return {**name, "prototypes": cell[0], "share": cell[1]}


def _cells(gen: GenSettings) -> list[Cell]:
    """The grid. Without links all M give the same graphs: that is one cell, and the first."""
    linked = [share for share in gen.shares if share]
    none = [NO_NEIGHBOURS] if len(linked) < len(gen.shares) else []
    return [*none, *product(gen.prototypes, linked)]


def _first_equal(config: Config, census: Census, sent: Message) -> dict[Cell, Cell]:
    """For every cell of the grid, the first one that gives the same graphs; only it is trained.

    Shares that round to the same number of links do, and so do two M of which merging left the same
    prototypes: those of a smaller M are unions of the larger one's, so as many are the same ones.
    """
    nodes = census.of("nodes")
    first: dict[tuple[tuple[int, int], ...], Cell] = {}
    found: dict[Cell, Cell] = {}
    for cell in _cells(config.gen):
        graphs = tuple(_linked(config.gen, cell, k, nodes[k], sent) for k in sorted(nodes))
        found[cell] = first.setdefault(graphs, cell)
    return found


def _linked(gen: GenSettings, cell: Cell, party: int, nodes: int, sent: Message) -> tuple[int, int]:
    """How many prototypes a party may link to, and its links; the first says nothing without."""
    m, share = cell
    generated = int((sent[f"owner.{m}"] != party).sum()) if share else 0
    links = count_links(gen.linking, nodes, generated, share)
    return generated if links else 0, links


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
