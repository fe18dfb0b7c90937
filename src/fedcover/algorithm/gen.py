"""Gen as the coordinator sees it: prototypes pass through, a link predictor is trained, M and p are
chosen by the pooled validation loss (paper, sections 5.2, 5.3 and 6.1).

Every cell of the grid of M and p is trained for a few rounds; the one with the lowest loss is then
trained in full. No calibration or test label is seen.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcover.algorithm import checks
from fedcover.algorithm.calibrate import Census
from fedcover.algorithm.fedavg import Trained, fedavg
from fedcover.algorithm.requests import Ask, Conversation, Parallel, Replies, Tell, once
from fedcover.config import Config, Recipe
from fedcover.conformal.protocol import Message
from fedcover.party.generated import PROTOTYPES
from fedcover.party.links import count_links
from fedcover.plans import LINKER, cell_part, link_plan, plan_of

Cell = tuple[int, float]


def linker(config: Config, features: int) -> Conversation[dict[str, NDArray[Any]]]:
    """The parties' prototypes, told to all of them, and the VGAE that links them."""
    check, most = checks.prototypes(config.gen.prototypes, features)

    def ask() -> Conversation[dict[str, NDArray[Any]]]:
        replies: Replies = yield Ask(PROTOTYPES, "prototypes", check=check, most=most)
        parties, gathered = sorted(replies), {}
        for m in config.gen.prototypes:
            rows = [replies[party][str(m)] for party in parties]
            gathered[f"rows.{m}"] = np.concatenate(rows)
            gathered[f"owner.{m}"] = np.repeat(np.array(parties), [len(row) for row in rows])
        return gathered

    sent = yield from once(PROTOTYPES, ask())
    yield Tell(PROTOTYPES, sent)
    yield from fedavg(LINKER, link_plan(config.gen))
    return sent


def choose_cell(
    recipe: Recipe, config: Config, classes: int, census: Census, sent: Message
) -> Conversation[dict[str, Any]]:
    """Choose M and p for the model that is trained after; without validation nodes the first."""
    cells = _distinct(config, census, sent)
    chosen, losses = cells[0], dict.fromkeys(cells, np.nan)
    if len(cells) > 1:
        parts = {cell: cell_part(recipe, *cell) for cell in cells}
        trained: dict[str, Trained] = yield Parallel(
            {
                part: fedavg(part, plan_of(config, classes, part), keep=False)
                for part in parts.values()
            }
        )
        losses = {cell: _loss(trained[part]) for cell, part in parts.items()}
        chosen = min(cells, key=lambda cell: losses[cell])
    yield Tell(f"{recipe.shared}/cell", {"cell": np.array(chosen)})
    found: dict[str, Any] = {"prototypes": chosen[0], "share": chosen[1]}
    if len(cells) > 1:
        found["grid"] = [
            {"prototypes": m, "share": p, "valid_loss": _rounded(losses[m, p])} for m, p in cells
        ]
    return found


def _distinct(config: Config, census: Census, sent: Message) -> list[Cell]:
    """The grid without those cells that give the same graphs as an earlier one.

    Shares that round to the same number of links do, and so do two M of which merging left the same
    prototypes: those of a smaller M are unions of the larger one's, so as many are the same ones.
    """
    gen, seen, kept = config.gen, set(), []
    nodes = census.of("nodes")
    for m, share in product(gen.prototypes, gen.shares):
        others = {party: int((sent[f"owner.{m}"] != party).sum()) for party in nodes}
        key = tuple(
            (others[party], count_links(gen.linking, nodes[party], others[party], share))
            for party in sorted(nodes)
        )
        if key not in seen:
            seen.add(key)
            kept.append((m, share))
    return kept


def _loss(trained: Trained) -> float:
    loss = trained.losses[trained.best]
    return np.inf if np.isnan(loss) else loss


def _rounded(loss: float) -> float | None:
    return round(float(loss), 5) if np.isfinite(loss) else None


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
