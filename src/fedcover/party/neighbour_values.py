"""What +neighbours adds up of a party's own nodes: features, encodings or a model's probabilities.

Numbers are in fixed point, so that sums are exact in any order and can be masked.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fedcover import fixed_point
from fedcover.conformal import softmax
from fedcover.errors import DataError
from fedcover.graphs.scaling import Scaling, column_sums, scaled
from fedcover.party.data import PartyData
from fedcover.plans import SUMMARISER, SUMS
from fedcover.training.plan import Features, Index
from fedcover.training.program import hidden_layer

if TYPE_CHECKING:
    from fedcover.party.party import Party

BITS = 24  # of the fraction of a value that is added up
MOST = 1 << 15  # a value's magnitude, and far ends of a node: their sum has room in the words
VALUES = f"{SUMS} values"  # under which a party remembers what it adds up


def values_of(party: "Party") -> Any:
    """Of every own node, in fixed point: its features; what the shared model's hidden layer makes
    of it; or the probabilities that this model gives its labels."""

    def make() -> Any:
        settings, graph = party.config.neighbour, party.graph
        values = own_gaps_filled(party.data, party.scaling, graph.x)
        if settings.values == "labels":
            values = softmax(party.logits(SUMMARISER))
        if settings.values == "encoding":
            values = hidden_layer(graph, party.weights[SUMMARISER], party.plan(SUMMARISER))
        if settings.epsilon is not None:
            values = _clipped(values, settings.norm)
        bits = 0 if word(party) == np.uint16 else BITS
        if settings.values != "features":  # once for all, whatever model may come later
            if VALUES not in party.told:
                party.tell(VALUES, {"values": _encoded(values, bits)})
            return party.told[VALUES]["values"]
        if not sp.issparse(values):
            return _encoded(values, bits)
        held = _encoded(values.data, bits), values.indices, values.indptr
        return sp.csr_array(held, shape=values.shape)

    return party.once("summaries", make)


def _encoded(values: NDArray[np.floating], bits: int) -> Index:
    if not (np.abs(values) < MOST).all():
        raise DataError(
            f"a feature is {np.abs(values).max():.6g}; +neighbours adds up numbers below {MOST:,}, "
            "so bring the features to one scale: --standardise."
        )
    return fixed_point.encode(values, bits)


def _clipped(values: Features, norm: float) -> Features:
    """Rows that are longer than ``norm``, shortened to it."""
    length = (sp.linalg if sp.issparse(values) else np.linalg).norm(values, axis=1)
    scale = np.minimum(1.0, norm / np.maximum(length, norm))
    return sp.diags_array(scale) @ values if sp.issparse(values) else values * scale[:, None]


def word(party: "Party") -> type[np.unsignedinteger | np.signedinteger]:
    """The type of numbers that are added: features that are 0 or 1 at all parties are counted."""
    settings = party.config.neighbour
    counted = settings.values == "features" and settings.epsilon is None
    bits = party.scaling is None and not party.data.numeric.any()
    return np.uint16 if counted and bits else np.int64


def own_gaps_filled(data: PartyData, scaling: Scaling | None, x: Features) -> Features:
    """The features as others get them: a gap has the mean of the party's own nodes.

    Training fills gaps by a mean that all parties know and that differs by seed, so that a sum
    would tell how many gaps are in it, and with two gaps among three what the third value is.
    """
    if scaling is None or data.missing is None or not data.missing.size:
        return x
    columns = np.unique(data.missing[1])
    count, total, _ = column_sums(data.x, np.arange(len(data.y)), columns, data.missing)
    fill = scaling.fill.copy()
    fill[columns] = np.where(count > 0, total / np.maximum(count, 1), fill[columns])
    return scaled(data.x, replace(scaling, fill=fill), data.missing)
