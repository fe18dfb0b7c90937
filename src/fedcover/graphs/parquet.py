"""Parquet files, looked over before they are read: every count and size they state is bounded.

A reader makes room for what a file says it holds; a damaged number then asks for more memory than
there is, which ends the process instead of raising an error. No library shows the sizes of pages
without unpacking them, so the footer, and the header in front of every page, are walked through
here: small structures in Thrift's compact protocol. A file is refused that states a number beyond
what a file of its size may unpack to (:mod:`fedcover.graphs.files`).
"""

from pathlib import Path
from typing import Any, BinaryIO

from fedcover.errors import DataError
from fedcover.graphs.files import allowed, check_expansion

_ROW_GROUPS, _COLUMNS, _CHUNK = 4, 1, 3  # fields of FileMetaData, RowGroup and ColumnChunk
_VALUES, _COMPRESSED, _DATA_AT, _DICTIONARY_AT = 5, 7, 9, 11  # of ColumnMetaData
_UNPACKED, _PACKED, _CHECKSUM = 2, 3, 4  # of PageHeader
_PAGES = (5, 7, 8)  # of PageHeader: a data page, a dictionary, a data page of the second version


def check_parquet(path: Path) -> None:
    """Refuse a file if a number in it cannot be right, or if its pages unpack to too much."""
    try:
        with path.open("rb") as file:
            _check(path, file)
    except DataError:
        raise
    except Exception as error:  # a damaged one can be wrong in any way
        raise DataError(f"{path} is not a readable Parquet file.") from error


def _check(path: Path, file: BinaryIO) -> None:
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
            values += _page_values(page, chunk[_VALUES])
            at = file.tell() + page[_PACKED]
            unpacked += page[_UNPACKED]
            check_expansion(path, unpacked)
        if at > end:
            raise ValueError("a page lies outside its column")


def _page_values(page: dict[int, Any], most: int) -> int:
    """How many of the column's values are in a page: none in a dictionary."""
    (count,) = (page[field][1] for field in _PAGES if field in page)
    if count > most:
        raise ValueError("a page has more values than its column")
    return 0 if _PAGES[1] in page else int(count)


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
    while head := _byte(file):
        number = number + (head >> 4) if head >> 4 else _signed(file)
        kind = head & 15
        fields[number] = kind == 1 if kind in (1, 2) else _value(file, kind)
    return fields


def _value(file: BinaryIO, kind: int) -> Any:
    match kind:
        case 1 | 2 | 3:  # within a list, a boolean is a byte
            return _byte(file)
        case 4 | 5 | 6:
            return _signed(file)
        case 7:
            return [_byte(file) for _ in range(8)]
        case 8:
            file.seek(_unsigned(file), 1)
            return None
        case 9 | 10:
            head = _byte(file)
            count = head >> 4 if head >> 4 < 15 else _unsigned(file)
            return [_value(file, head & 15) for _ in range(count)]
        case 12:
            return _struct(file)
    raise ValueError(f"there is no type {kind}")


def _byte(file: BinaryIO) -> int:
    return file.read(1)[0]


def _unsigned(file: BinaryIO) -> int:
    result = 0
    for shift in range(0, 64, 7):
        byte = _byte(file)
        result |= (byte & 127) << shift
        if byte < 128:
            return result
    raise ValueError("a number does not end")


def _signed(file: BinaryIO) -> int:
    value = _unsigned(file)
    return value >> 1 ^ -(value & 1)
