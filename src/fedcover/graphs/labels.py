"""Names to numbers: how labels, and clients, of an own graph are counted."""

import re
from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

_INTEGER = re.compile(r"-?[0-9]+")


def encode(
    values: pl.Series | NDArray[np.generic] | Sequence[str],
) -> tuple[NDArray[np.int64], list[str]]:
    """Number the distinct values in order: by size if all are integers, else as text.

    >>> codes, names = encode(["10", "9", "10"])
    >>> codes.tolist(), names
    ([1, 0, 1], ['9', '10'])
    """
    text = pl.Series(values).cast(pl.String)
    names = sorted(text.unique().to_list())
    if all(_INTEGER.fullmatch(name) for name in names):
        names.sort(key=int)
    return text.cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64), names
