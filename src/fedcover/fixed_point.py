r"""Sums over parties in fixed point: integers of 64 bits.

A party sends :math:`\mathrm{round}(x \cdot 2^b)`. Sums of integers are exact, the same in any
order, and can be masked: a coordinator that adds masked numbers learns the sum alone.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcover.errors import DataError

Integers = NDArray[np.int64]

BITS = 32  # of the fraction, where nothing else is agreed: sums are good to 2e-10
_LARGEST = 2.0**62
_LIMB, _LIMBS, _BELOW = 32, 14, 160  # a wide number has 14 limbs of 32 bits, 160 of them a fraction


def encode(values: ArrayLike, bits: int = BITS) -> Integers:
    """The nearest multiples of 2^-bits, as integers; what is not finite or too large is refused."""
    scaled = np.rint(np.asarray(values, dtype=np.float64) * 2.0**bits)
    _check(scaled, _LARGEST)
    return scaled.astype(np.int64)


def _check(values: NDArray[np.float64], below: float) -> None:
    if not (np.abs(values) < below).all():  # False for NaN, too
        raise DataError("a number to be added up is not finite, or too large to be sent.")


def decode(total: ArrayLike, bits: int = BITS) -> NDArray[np.float64]:
    """The number that a sum of :func:`encode` stands for."""
    return np.asarray(total).astype(np.float64) / 2.0**bits


def encode_wide(values: ArrayLike) -> Integers:
    """Any float64 between 1e-40 and 1e80 in magnitude, in limbs: one more axis at the end."""
    array = np.asarray(values, dtype=np.float64)
    _check(array, 1e80)
    limbs = np.empty((array.size, _LIMBS), dtype=np.int64)
    for row, value in zip(limbs, array.ravel().tolist(), strict=True):
        numerator, denominator = value.as_integer_ratio()
        whole = (numerator << _BELOW) // denominator
        for place in range(_LIMBS - 1):
            row[place] = whole & ((1 << _LIMB) - 1)
            whole >>= _LIMB
        row[-1] = whole  # with the sign
    return limbs.reshape(*array.shape, _LIMBS)


def decode_wide(total: Integers) -> NDArray[np.float64]:
    """The numbers that a sum of :func:`encode_wide` stands for, rounded once."""
    flat = total.reshape(-1, _LIMBS).tolist()
    values = [sum(limb << (_LIMB * place) for place, limb in enumerate(row)) for row in flat]
    exact = [value / (1 << _BELOW) for value in values]  # Python rounds a ratio of integers once
    return np.array(exact, dtype=np.float64).reshape(total.shape[:-1])


def add(messages: Iterable[Mapping[str, NDArray[Any]]]) -> dict[str, Integers]:
    """The sum of the parties' messages, array by array, modulo 2^64."""
    total: dict[str, Integers] = {}
    for message in messages:
        for name, array in message.items():
            wide = array.astype(np.int64)
            total[name] = total[name] + wide if name in total else wide
    return total
