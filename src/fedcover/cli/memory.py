"""Memory that training has freed stays with the process, for its next step."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # as glibc's malloc.h numbers them
_PAD = 64 * 2**20  # bytes


def keep_freed_memory() -> None:
    """Let glibc keep large blocks; nothing where the C library knows no ``mallopt``.

    By itself it maps every large block anew and unmaps it when it is freed, so that in each step of
    training on a large graph the kernel has to make all its pages again. It is for commands, which
    end when their work is done; the library and the parties' processes leave such things alone.
    """
    # Measured with `run --methods fed` on two cores. 10⁶ nodes, 10 rounds: 8 s in the kernel in
    # place of 32, training 20 s in place of 43, 5 % more memory. 10⁵ nodes, two seeds, 20 rounds,
    # means of seven and eight runs: 1.4 s in the kernel in place of 2.6, of 23 s, 14 % more memory.
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl and macOS have none, Windows no CDLL(None)
        return
    mallopt.argtypes, mallopt.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    mallopt(_MMAP_MAX, 0)
    mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    mallopt(_TOP_PAD, _PAD)
