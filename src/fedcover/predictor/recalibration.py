"""New scores for the old calibration nodes, after the graph has grown (NodeEx: Zargarbashi and
Bojchevski, "Conformal Inductive Graph Neural Networks", ICLR 2024)."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedcover import conformal
from fedcover.errors import DataError
from fedcover.graphs.assemble import source_of
from fedcover.graphs.labels import NO_LABEL
from fedcover.graphs.splits import Role, is_asked
from fedcover.predictor.calibration import DOUBTFUL, Calibration, Groups
from fedcover.predictor.inference import View
from fedcover.predictor.nodes import GraphNodes, inside, numbered

if TYPE_CHECKING:
    from fedcover.predictor.predictor import Predictor

ASKED = ("test", "unlabelled", "new")
"""Who has a promise then; a changed node is one of the first two."""
_ARRIVALS = 0xA221  # the purpose of random numbers, beside the seed


@dataclass(frozen=True)
class Recalibration:
    """``notes``: sentences a user must see. ``p_value``: of the hypothesis that new nodes are like
    calibration nodes, corrected for the number of statistics; None without new nodes."""

    notes: tuple[str, ...] = ()
    p_value: float | None = None


@dataclass(frozen=True)
class Difference:
    """A statistic of calibration and new nodes that needs no label, compared inside clients."""

    statistic: str
    p_value: float
    client: int  # where they differ most


def recalibrated(predictor: "Predictor", view: View) -> "Predictor":
    """The predictor with the calibration scores that this graph gives, for the nodes that are asked
    about in it: shares are theirs, by counts alone."""
    nodes, y = view.nodes, labels(view)
    calib = nodes.role == Role.CALIB
    usable = calib & (y != NO_LABEL)
    total = int((predictor.known.role == Role.CALIB).sum())
    gone, unlabelled = total - int(calib.sum()), int((calib & ~usable).sum())
    lost = f"{gone} of {total} calibration nodes are gone, and {unlabelled} have no label"
    known = predictor.known.client[predictor.known.role == Role.CALIB]
    empty = np.setdiff1d(known, nodes.client[usable])
    if len(empty):
        lost += f"; none is left at {', '.join(predictor.clients[k] for k in empty)}"
    if not usable.any():
        raise DataError(
            f"{source_of(view.graph)} cannot recalibrate: {lost}; it must hold some of the run's "
            "calibration nodes with their labels."
        )
    found = differences(predictor, view, usable)
    notes, p_value = [f"{lost}; the others were scored anew."] if gone or unlabelled else [], None
    if found:
        most = min(found, key=lambda one: one.p_value)
        p_value = min(1.0, most.p_value * len(found))
        if p_value < DOUBTFUL:
            notes.append(
                f"new nodes differ from the calibration nodes in {most.statistic}, most at the "
                f"client {predictor.clients[most.client]} (p = {p_value:.3g}): the level is "
                "doubtful for them."
            )
    calibrations = {
        name: Calibration.of(
            view.scores(name)[usable, y[usable]],
            nodes.client[usable],
            len(predictor.clients),
            _groups(view, old.groups, y, usable),
        )
        for name, old in predictor.calibrations.items()
    }
    return replace(
        predictor,
        calibrations=calibrations,
        terms=replace(predictor.terms, shares=_shares(predictor, nodes)),
        recalibration=Recalibration(tuple(notes), p_value),
    )


def _shares(predictor: "Predictor", nodes: GraphNodes) -> conformal.checks.Shares | None:
    """Of the nodes that are asked about in this graph, by counts alone; clients that the run has
    left out stay out, and those that it has limited stay limited."""
    old, known, clients = predictor.terms.shares, predictor.known, len(predictor.clients)
    if predictor.fixed_shares:
        return old
    asked = np.isin(nodes.kinds(np.zeros(len(nodes.names), dtype=bool)), ASKED)
    counts = np.bincount(nodes.client[asked], minlength=clients)
    if old is not None and len(old) == clients:
        had = np.bincount(known.client[is_asked(known.role)], minlength=clients)
        counts[(np.array(old) == 0) & (had > 0)] = 0
    return tuple(conformal.capped(counts, predictor.max_share)) if counts.any() else None


def differences(predictor: "Predictor", view: View, calib: NDArray[np.bool_]) -> list[Difference]:
    """Calibration against new nodes, by statistics that need no label; empty without new nodes."""
    nodes = view.nodes
    if not nodes.new.any():
        return []
    edges = inside(view.graph, nodes.client, predictor.whole)
    values = {
        "the top probability": view.probs.max(axis=1),
        "the number of neighbours": np.bincount(edges[1], minlength=len(calib)),
    }
    rng, there = np.random.default_rng((predictor.seed, _ARRIVALS)), calib | nodes.new
    tests = {
        name: conformal.permutation_test(value[there], nodes.client[there], calib[there], rng)
        for name, value in values.items()
    }
    return [Difference(name, test.p_value, test.party) for name, test in tests.items()]


def labels(view: View) -> NDArray[np.int64]:
    """Every node's label, numbered as the predictor has them."""
    known = view.predictor.labels
    numbers = [known.index(label) for label in view.graph.label_names]
    found: NDArray[np.int64] = np.array([*numbers, NO_LABEL])[view.graph.y.numpy()]
    return found


def _groups(
    view: View, groups: Groups | None, y: NDArray[np.int64], usable: NDArray[np.bool_]
) -> Groups | None:
    if groups is None:
        return None
    now = y if groups.kind == "class" else member(view, groups)
    assert now is not None
    return replace(groups, member=now[usable])


def member(view: View, groups: Groups | None) -> NDArray[np.int64] | None:
    """Which threshold each node takes; None: it is not the node that decides."""
    if groups is None or groups.kind == "class":
        return None
    if groups.kind == "client":
        return view.nodes.client
    return numbered(view.graph, "group", groups.names)
