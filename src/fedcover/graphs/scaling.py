"""Features on one scale, by statistics of training nodes alone, so that scores stay exchangeable.

Nothing of a calibration or test node shapes them but its own features (docs/guarantee.md). In a
federation the statistics are sums: how many values, their sum and the sum of their squares leave
each client for every column, and the mean and the scale come back.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedcover.errors import DataError

Features: TypeAlias = sparse.csr_array | NDArray[np.float32]

ROUNDING = 1e-13  # a variance below this share of the squared mean is what rounding leaves


@dataclass(frozen=True)
class Scaling:
    """What is subtracted from every feature, and what it is divided by; all are float32.

    ``mean`` is 0 and ``scale`` 1 where a column is left alone. ``fill`` stands in for a missing
    value before that: the training mean, or 0 in columns that had none missing.
    """

    mean: NDArray[np.float32]
    scale: NDArray[np.float32]
    fill: NDArray[np.float32]

    def to_dict(self) -> dict[str, list[float]]:
        """Plain lists, for JSON; :meth:`from_dict` gives the same numbers back, bit for bit."""
        return {name: part.tolist() for name, part in vars(self).items()}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Scaling":
        """The scaling that :meth:`to_dict` spelt."""
        try:
            with np.errstate(over="ignore"):  # what becomes infinite is refused below
                parts = [np.asarray(content[name], np.float32) for name in cls.__annotations__]
        except (KeyError, TypeError, ValueError) as error:
            raise DataError("The scaling must have lists of numbers mean, scale, fill.") from error
        if any(part.ndim != 1 or len(part) != len(parts[0]) for part in parts):
            raise DataError("The lists mean, scale and fill of the scaling must be equally long.")
        if not all(np.isfinite(part).all() for part in parts) or (parts[1] <= 0).any():
            raise DataError("The scaling must be of finite numbers, and every scale positive.")
        return cls(*parts)


_FINITE = (np.finfo(np.float32).min, np.finfo(np.float32).max)


def column_sums(
    x: Features,
    nodes: NDArray[np.integer],
    columns: NDArray[np.integer],
    missing: NDArray[np.integer] | None = None,
) -> NDArray[np.float64]:
    """One client's part: count, sum and sum of squares (3, columns) over its training nodes.

    ``missing`` (2, m) are rows and columns of cells that hold no value; they are not counted.
    """
    values = _dense(x, nodes, columns).astype(np.float64)
    there = np.ones(values.shape, dtype=bool)
    if missing is not None and missing.shape[1]:
        gaps = sparse.coo_array((np.ones(missing.shape[1]), missing), shape=x.shape).tocsr()
        there = _dense(gaps, nodes, columns) == 0
        values[~there] = 0.0
    return np.stack([there.sum(axis=0), values.sum(axis=0), (values**2).sum(axis=0)])


def scaling_of(
    sums: NDArray[np.float64], columns: NDArray[np.integer], standardised: NDArray[np.bool_]
) -> Scaling:
    """The server's part: mean and standard deviation (that of n, not n − 1) from all sums.

    ``sums`` are those of ``columns``; of these, ``standardised`` (features,) marks the ones that
    are scaled. A column that is constant on training nodes is only centred.
    """
    count, total, squares = sums
    mean = total / np.maximum(count, 1)
    variance = squares / np.maximum(count, 1) - mean**2
    spread = np.sqrt(np.where(variance > ROUNDING * mean**2, variance, 1.0)).astype(np.float32)
    fill, scale = np.zeros(len(standardised), np.float32), np.ones(len(standardised), np.float32)
    fill[columns], scale[columns] = mean, np.where(spread > 0, spread, 1.0)
    zero, one = np.float32(0), np.float32(1)
    return Scaling(np.where(standardised, fill, zero), np.where(standardised, scale, one), fill)


def scaled(x: Features, scaling: Scaling, missing: NDArray[np.integer] | None = None) -> Features:
    """The features on the fitted scale, missing cells filled; sparse ones stay sparse.

    Columns that are left alone keep their bits.
    """
    width = len(scaling.mean)
    if x.shape[1] != width:
        raise DataError(f"The features have {x.shape[1]} columns, but the scaling is for {width}.")
    moved = np.flatnonzero((scaling.mean != 0) | (scaling.scale != 1))
    if missing is not None:
        moved = np.union1d(moved, missing[1])
    if not len(moved):
        return x
    values = _dense(x, np.arange(x.shape[0]), moved)
    if missing is not None and missing.shape[1]:
        values[missing[0], np.searchsorted(moved, missing[1])] = scaling.fill[missing[1]]
    with np.errstate(over="ignore"):  # a value far off every training node's stays finite
        values = np.clip((values - scaling.mean[moved]) / scaling.scale[moved], *_FINITE)
    if isinstance(x, np.ndarray):
        result = x.copy()
        result[:, moved] = values
        return result
    row, place = np.nonzero(values)
    entries = sparse.coo_array((values[row, place], (row, moved[place])), shape=x.shape)
    kept = x.copy()
    kept.data[np.isin(np.arange(width), moved)[kept.indices]] = 0
    kept.eliminate_zeros()
    return sparse.csr_array(kept + entries.tocsr(), dtype=np.float32)


def _dense(
    x: Features, nodes: NDArray[np.integer], columns: NDArray[np.integer]
) -> NDArray[np.float32]:
    if isinstance(x, np.ndarray):
        return np.asarray(x[np.ix_(nodes, columns)], dtype=np.float32)
    return np.asarray(x[nodes][:, columns].toarray(), dtype=np.float32)
