"""A quick hash of 64-bit words: for masks and comparisons, not for secrets."""

import numpy as np
from numpy.typing import NDArray


def splitmix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The splitmix64 finaliser, in place."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words
