"""Names to numbers: how labels, and clients, of an own graph are counted."""

import re

import numpy as np
from numpy.typing import ArrayLike, NDArray

_INTEGER = re.compile(r"-?[0-9]+")


def encode(values: ArrayLike) -> tuple[NDArray[np.int64], list[str]]:
    """Number the distinct values in order: by size if all are integers, else as text.

    >>> codes, names = encode(["10", "9", "10"])
    >>> codes.tolist(), names
    ([1, 0, 1], ['9', '10'])
    """
    distinct, codes = np.unique(np.asarray(values).astype(str), return_inverse=True)
    names = [str(value) for value in distinct]
    if not all(_INTEGER.fullmatch(name) for name in names):
        return codes.astype(np.int64), names
    order = sorted(range(len(names)), key=lambda i: (int(names[i]), names[i]))
    number = np.empty(len(names), dtype=np.int64)
    number[order] = np.arange(len(names))
    return number[codes], [names[i] for i in order]
