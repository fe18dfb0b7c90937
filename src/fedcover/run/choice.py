"""Choose Gen's M and p by the pooled validation loss, seed by seed (paper, section 6.1).

Every cell of the grid is trained for a few rounds; the cell with the lowest validation loss is then
trained in full. No calibration or test label is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fedcover.experiment.methods import Prepared, Setting
    from fedcover.neighbors.gen import Generated


def choose(
    bare: Sequence[Prepared], generated: Sequence[Generated], setting: Setting
) -> list[Prepared]:
    """For each seed, the augmented federation of its best cell; the losses of all are kept."""
    gen = setting.config.gen
    cells = list(product(gen.prototypes, gen.shares))
    losses = np.zeros((len(bare), len(cells)))
    if len(cells) > 1:
        losses = _grid(bare, generated, cells, setting)
    results = []
    for prepared, one, own_losses in zip(bare, generated, losses, strict=True):
        # Without validation nodes there is no loss to compare, and the first cell is taken.
        prototypes, share = cells[int(np.argmin(np.nan_to_num(own_losses, nan=np.inf)))]
        chosen: dict[str, Any] = {"prototypes": prototypes, "share": share}
        if len(cells) > 1:
            chosen["grid"] = [
                {"prototypes": m, "share": p, "valid_loss": _loss(loss)}
                for (m, p), loss in zip(cells, own_losses, strict=True)
            ]
            cell = np.array([prototypes, share])
            prepared.ledger.announce("chosen M and p", cell, len(prepared.parts))
        federation = one.augmented(prototypes, share)
        notes = [_silence(one.silent, gen.vae.min_cluster)] if one.silent else []
        if one.noise:
            notes.append(f"gen: {one.noise}")
        results.append(replace(prepared, federation=federation, chosen=chosen, notes=notes))
    return results


def _grid(
    bare: Sequence[Prepared],
    generated: Sequence[Generated],
    cells: Sequence[tuple[int, float]],
    setting: Setting,
) -> NDArray[np.float64]:
    """The validation loss of each seed (rows) and cell (columns) after a short training.

    It takes all training nodes at a step, also where the training that follows takes batches: to
    rank twenty graphs, many small steps on each would cost more than everything else.
    Shares that round to the same number of links give the same graphs, and so do two M of which
    merging left the same prototypes. Such graphs are trained once; a seed's ledger counts them
    once even if they are trained again for another seed's sake.
    """
    rounds = min(setting.config.gen.screening, setting.plan.rounds)
    plan = replace(setting.plan, rounds=rounds, batch_size=None)
    seen: dict[tuple[tuple[int, ...], ...], NDArray[np.float64]] = {}
    counted: list[set[tuple[int, ...]]] = [set() for _ in bare]
    columns = []
    for done, (prototypes, share) in enumerate(cells):
        federations = [one.augmented(prototypes, share) for one in generated]
        # Prototypes of a smaller M are unions of the larger one's: as many are the same ones.
        keys = [
            (
                *(len(got.owner) for got in one.received[prototypes]),
                *(client.edge_index.shape[1] for client in federation.clients),
            )
            for one, federation in zip(generated, federations, strict=True)
        ]
        key = tuple(keys)
        if key not in seen:
            trained = setting.engine.train(federations, plan)
            seen[key] = np.array([model.valid_loss[model.best_round] for model in trained])
            for model, prepared, own, known in zip(trained, bare, keys, counted, strict=True):
                if own not in known:
                    prepared.ledger.record_training(
                        model.weights[0],
                        len(model.weights),
                        model.rounds,
                        average=True,
                        purpose=", choice of M and p",
                    )
                    known.add(own)
        columns.append(seen[key])
        setting.report("choice gen", done + 1, len(cells))
    return np.stack(columns, axis=1)


def _loss(value: float) -> float | None:
    return round(float(value), 5) if np.isfinite(value) else None


def _silence(clients: Sequence[int], at_least: int) -> str:
    names = ", ".join(map(str, clients))
    who = f"client {names} has" if len(clients) == 1 else f"clients {names} have"
    return (
        f"gen: {who} fewer than {at_least} training nodes and sends no prototypes, since they "
        "would be nearly real nodes."
    )
