"""Compressed files: what they unpack to is limited before it is held.

A few kilobytes can stand for terabytes. The limit is relative to the file's own size, with an
amount that is always free and one that is never exceeded.

A reader of Parquet makes room for what a file says it holds; a damaged number ends the process for
lack of memory. No library shows the sizes of pages without unpacking them, so the footer and the
pages' headers are read here: small structures in Thrift's compact protocol.
"""

import zlib
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from fedcover.errors import DataError

ALWAYS_FREE = 64 * 2**20  # bytes that every file may unpack to, however small it is
MAX_EXPANSION = 200  # how many times its own size a file may unpack to, beyond the free amount
MAX_UNPACKED = 8 * 2**30  # bytes that no file may unpack to
_PIECE = 2**10  # bytes of input at a time, which zstd can make 2**25 of
_GZIP = 16 + zlib.MAX_WBITS
_ROW_GROUPS, _COLUMNS, _CHUNK = 4, 1, 3  # fields of FileMetaData, RowGroup and ColumnChunk
_VALUES, _COMPRESSED, _DATA_AT, _DICTIONARY_AT = 5, 7, 9, 11  # of ColumnMetaData
_UNPACKED, _PACKED, _CHECKSUM = 2, 3, 4  # of PageHeader
_DICTIONARY = 7  # of PageHeader
_PAGES = (5, _DICTIONARY, 8)  # the others are data pages of the first and second version


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

    Small pieces of input bound what each is unpacked to, and the work where a file is made of many
    small streams. Unlike zstandard's own reader, this one says when a stream is cut off.
    """
    packed, kind = path.read_bytes(), "gzip" if path.suffix == ".gz" else "zstd"
    parts, total, at, stream = [], 0, 0, None
    try:
        while at < len(packed):
            piece = packed[at : at + _PIECE]
            at += len(piece)
            if stream is None:
                piece = piece.lstrip(b"\0")  # tapes and some tools pad with zeros
                if not piece:
                    continue
                unzstd = zstandard.ZstdDecompressor().decompressobj
                stream = zlib.decompressobj(_GZIP) if kind == "gzip" else unzstd()
            parts.append(stream.decompress(piece))
            total += len(parts[-1])
            check_expansion(path, total)
            at -= len(stream.unused_data)
            stream = None if stream.eof else stream
    except (zlib.error, zstandard.ZstdError) as error:
        raise DataError(f"{path} is not a readable {kind} file.") from error
    if stream is not None:
        raise DataError(f"{path} is cut off: its compressed stream does not end.")
    return b"".join(parts)


def check_parquet(path: Path) -> None:
    """Refuse a file if a number in it cannot be right, or if its pages unpack to too much."""
    try:
        with path.open("rb") as file:
            _walk(path, file)
    except DataError:
        raise
    except Exception as error:  # a damaged one can be wrong in any way
        raise DataError(f"{path} is not a readable Parquet file.") from error


def _walk(path: Path, file: BinaryIO) -> None:
    """Read the footer and the header of every page, and nothing else."""
    size = path.stat().st_size
    packed = unpacked = 0
    file.seek(max(size - 8, 0))
    length, magic = int.from_bytes(file.read(4), "little"), file.read(4)
    if magic != b"PAR1" or length + 12 > size:
        raise ValueError("no footer")
    file.seek(size - 8 - length)
    footer = _struct(file)
    _check_numbers(footer, allowed(size))
    for chunk in (c[_CHUNK] for group in footer[_ROW_GROUPS] for c in group[_COLUMNS]):
        at = min(chunk[_DATA_AT], chunk.get(_DICTIONARY_AT, 0) or chunk[_DATA_AT])
        end, values = at + chunk[_COMPRESSED], 0
        packed += end - at
        if not 0 <= at <= end <= size or packed > size:
            raise ValueError("a column lies outside the file, or shares its bytes with others")
        while at < end and values < chunk[_VALUES]:
            file.seek(at)
            page = _struct(file)
            page.pop(_CHECKSUM, None)  # any number
            _check_numbers(page, allowed(size))
            (count,) = (page[field][1] for field in _PAGES if field in page)
            if count > chunk[_VALUES]:
                raise ValueError("a page has more values than its column")
            values += 0 if _DICTIONARY in page else count
            at = file.tell() + page[_PACKED]
            unpacked += page[_UNPACKED]
            check_expansion(path, unpacked)
        if at > end:
            raise ValueError("a page lies outside its column")


def _check_numbers(value: Any, limit: int) -> None:
    """Refuse a number in a structure that is negative, or too large for this file."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            _check_numbers(part, limit)
    elif isinstance(value, int) and not -1 <= value <= limit:
        raise ValueError(f"the number {value} is out of bounds")


def _struct(file: BinaryIO) -> dict[int, Any]:
    """A structure of the compact protocol by field number; text is skipped over."""
    fields: dict[int, Any] = {}
    number = 0
    while head := file.read(1)[0]:
        number = number + (head >> 4) if head >> 4 else _signed(file)
        kind = head & 15
        fields[number] = kind == 1 if kind in (1, 2) else _value(file, kind)
    return fields


def _value(file: BinaryIO, kind: int) -> Any:
    match kind:
        case 1 | 2 | 3:  # within a list, a boolean is a byte
            return file.read(1)[0]
        case 4 | 5 | 6:
            return _signed(file)
        case 7:
            return [_value(file, 3) for _ in range(8)]
        case 8:
            file.seek(_unsigned(file), 1)
            return None
        case 9 | 10:
            head = file.read(1)[0]
            count = head >> 4 if head >> 4 < 15 else _unsigned(file)
            return [_value(file, head & 15) for _ in range(count)]
        case 12:
            return _struct(file)
    raise ValueError(f"there is no type {kind}")


def _unsigned(file: BinaryIO) -> int:
    result = 0
    for shift in range(0, 64, 7):
        byte = file.read(1)[0]
        result |= (byte & 127) << shift
        if byte < 128:
            return result
    raise ValueError("a number does not end")


def _signed(file: BinaryIO) -> int:
    value = _unsigned(file)
    return value >> 1 ^ -(value & 1)
