"""Compressed tables, opened with a bound: what a file unpacks to is limited before it is held.

A few kilobytes can stand for terabytes. The bound is relative to the file's own size, with an
amount that is always free and one that is never exceeded.
"""

import zlib
from pathlib import Path

import polars as pl

from fedcover.errors import DataError

ALWAYS_FREE = 64 * 2**20
"""Bytes that every file may unpack to, however small it is."""

MAX_EXPANSION = 200
"""How many times its own size a file may unpack to, beyond the free amount."""

MAX_UNPACKED = 8 * 2**30
"""Bytes that no file may unpack to."""

_CHUNK = 2**20
_PIECE = 2**12  # bytes of input at a time
_GZIP = 16 + zlib.MAX_WBITS
_ZSTD_FRAME = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK = 128 * 2**10  # no block of the format unpacks to more (RFC 8878, section 3.1.1.2.4)
_NO_FIELD = "\x1f"  # the unit separator: in no table that people make


def allowed(size: int) -> int:
    """How many bytes a file of this size may unpack to.

    >>> allowed(1_000) == ALWAYS_FREE, allowed(2**20), allowed(2**40) == MAX_UNPACKED
    (True, 209715200, True)
    """
    return min(max(ALWAYS_FREE, MAX_EXPANSION * size), MAX_UNPACKED)


def refuse_expansion(path: Path, size: int) -> DataError:
    """The refusal of a file that would unpack to more than it may."""
    return DataError(
        f"{path} unpacks to more than {allowed(size):,} bytes, the most that is read of a file of "
        f"{size:,} bytes; unpack it yourself if it is what it should be."
    )


def unpacked(path: Path) -> bytes:
    """The content of a ``.gz`` or ``.zst`` file, if it is not too much of it."""
    packed = path.read_bytes()
    return _gunzip(path, packed) if path.suffix == ".gz" else _unzstd(path, packed)


def _gunzip(path: Path, packed: bytes) -> bytes:
    """All members of a gzip file, in chunks.

    Input is handed over in pieces: what a piece holds beyond a member is copied back by zlib, which
    with all that follows would take quadratic time for many small members.
    """
    limit, parts, total = allowed(len(packed)), [], 0
    view, at = memoryview(packed), 0
    try:
        while at < len(packed):
            member = zlib.decompressobj(_GZIP)
            while not member.eof:
                piece = view[at : at + _PIECE]
                part = member.decompress(piece, _CHUNK)
                left = len(member.unused_data) if member.eof else len(member.unconsumed_tail)
                at += len(piece) - left
                if not part and left == len(piece) and not member.eof:
                    raise DataError(f"{path} is cut off: its gzip stream does not end.")
                total += len(part)
                if total > limit:
                    raise refuse_expansion(path, len(packed))
                parts.append(part)
            at = _after_zeros(packed, at)
    except zlib.error as error:
        raise DataError(f"{path} is not a readable gzip file.") from error
    return b"".join(parts)


def _after_zeros(packed: bytes, at: int) -> int:
    """The place of the next byte that is not 0: tapes and some tools pad with zeros."""
    while piece := packed[at : at + _PIECE]:
        rest = piece.lstrip(b"\0")
        at += len(piece) - len(rest)
        if rest:
            break
    return at


def _unzstd(path: Path, packed: bytes) -> bytes:
    """The lines of a zstd file, which polars unpacks after the blocks' headers have been added up.

    Python has no zstd before 3.14, and polars reads it, but only as a table: as one of a single
    column, every line is a row.
    """
    if _zstd_bound(path, packed) > allowed(len(packed)):
        raise refuse_expansion(path, len(packed))
    try:
        lines = pl.read_csv(
            packed,
            has_header=False,
            separator=_NO_FIELD,
            quote_char=None,
            schema={"line": pl.String},
        )["line"]
    except pl.exceptions.NoDataError:
        return b""
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        raise DataError(f"{path} is not a readable zstd file of text in UTF-8.") from error
    return "\n".join([*lines.fill_null(""), ""]).encode()


def _zstd_bound(path: Path, packed: bytes) -> int:
    """At most how many bytes the frames unpack to, from the headers of their blocks alone.

    RFC 8878, section 3.1.1: a raw block holds its size, a run-length block repeats one byte that
    often, and a compressed one unpacks to at most 128 KiB.
    """
    bound, at = 0, 0
    try:
        while at < len(packed):
            magic = packed[at : at + 4]
            if magic[1:] == b"\x2a\x4d\x18" and 0x50 <= magic[0] <= 0x5F:  # skippable
                at += 8 + int.from_bytes(packed[at + 4 : at + 8], "little")
                continue
            if magic != _ZSTD_FRAME:
                raise DataError(f"{path} is not a readable zstd file of text in UTF-8.")
            descriptor = packed[at + 4]
            single = descriptor >> 5 & 1
            dictionary = (0, 1, 2, 4)[descriptor & 3]
            content = (single, 2, 4, 8)[descriptor >> 6]
            at += 5 + (1 - single) + dictionary + content
            last = 0
            while not last:
                header = int.from_bytes(packed[at : at + 3], "little")
                if at + 3 > len(packed):
                    raise IndexError
                last, kind, size = header & 1, header >> 1 & 3, header >> 3
                bound += _ZSTD_BLOCK if kind == 2 else size
                at += 3 + (1 if kind == 1 else size)
            at += 4 * (descriptor >> 2 & 1)  # a checksum
    except IndexError:
        raise DataError(f"{path} is cut off: its zstd frames do not end.") from None
    return bound
