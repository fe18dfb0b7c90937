"""Files from others: only regular ones are opened, and what they unpack to is limited.

A pipe would be waited for, a device never ends, and a few kilobytes can stand for terabytes. The
limit is relative to the file's own size, with an amount that is always free and one that is never
exceeded.
"""

import zlib
from pathlib import Path

import zstandard

from fedcover.errors import DataError

ALWAYS_FREE = 64 * 2**20
"""Bytes that every file may unpack to, however small it is."""

MAX_EXPANSION = 200
"""How many times its own size a file may unpack to, beyond the free amount."""

MAX_UNPACKED = 8 * 2**30
"""Bytes that no file may unpack to."""

_PIECE = 2**10  # bytes of input at a time, which zstd can make 2**25 of
_GZIP = 16 + zlib.MAX_WBITS


def check_regular(path: Path) -> None:
    """Refuse a folder, pipe or device, also behind a link; what is not there is left to opening."""
    try:
        other = path.exists() and not path.is_file()
    except OSError:  # a folder on the way is closed to us, which opening the file will say
        return
    if other:
        raise DataError(f"{path} is not a regular file.")


def allowed(size: int) -> int:
    """How many bytes a file of this size may unpack to.

    >>> allowed(1_000) == ALWAYS_FREE, allowed(2**20), allowed(2**40) == MAX_UNPACKED
    (True, 209715200, True)
    """
    return min(max(ALWAYS_FREE, MAX_EXPANSION * size), MAX_UNPACKED)


def check_expansion(path: Path, unpacked: int) -> None:
    """Refuse a file that unpacks to more bytes than it may."""
    size = path.stat().st_size
    if unpacked > allowed(size):
        raise DataError(
            f"{path} unpacks to more than {allowed(size):,} bytes, the most that is read of a file "
            f"of {size:,} bytes; unpack it yourself if it is what it should be."
        )


def unpacked(path: Path) -> bytes:
    """The content of a ``.gz`` or ``.zst`` file, of one or several streams, if it is not too much.

    Input is handed over in small pieces, which bounds what each is unpacked to, and the work where
    a file is made of many small streams.
    """
    packed, is_gzip = path.read_bytes(), path.suffix == ".gz"
    parts, total, at, stream = [], 0, 0, None
    try:
        while at < len(packed):
            piece = packed[at : at + _PIECE]
            at += len(piece)
            if stream is None:
                piece = piece.lstrip(b"\0")  # tapes and some tools pad with zeros
                if not piece:
                    continue
                unzstd = zstandard.ZstdDecompressor()
                stream = zlib.decompressobj(_GZIP) if is_gzip else unzstd.decompressobj()
            parts.append(stream.decompress(piece))
            total += len(parts[-1])
            check_expansion(path, total)
            at -= len(stream.unused_data)
            stream = None if stream.eof else stream
    except (zlib.error, zstandard.ZstdError) as error:
        kind = "gzip" if is_gzip else "zstd"
        raise DataError(f"{path} is not a readable {kind} file.") from error
    if stream is not None:
        raise DataError(f"{path} is cut off: its compressed stream does not end.")
    return b"".join(parts)
