"""Parquet files, looked over before they are read: every count and size they state is bounded.

A reader makes room for what a file says it holds; a damaged number then asks for more memory than
there is, which ends the process instead of raising an error. The footer, and the header in front
of every page, are small structures in Thrift's compact protocol. Here they are walked through, and
a file is refused that states a number beyond what a file of its size may unpack to
(:mod:`fedcover.graphs.compressed`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedcover.graphs.compressed import allowed, refuse_expansion

_MAGIC = b"PAR1"
_LARGEST_HEADER = 2**16  # bytes; statistics of a page hold two values
_DEEPEST = 12  # structures within structures
_ROW_GROUPS, _COLUMNS, _CHUNK = 4, 1, 3  # fields of FileMetaData, RowGroup and ColumnChunk
_VALUES, _COMPRESSED, _DATA_AT, _DICTIONARY_AT = 5, 7, 9, 11  # of ColumnMetaData
_UNPACKED, _PACKED, _CHECKSUM = 2, 3, 4  # of PageHeader
_PAGES = (5, 7, 8)  # of PageHeader: a data page, a dictionary, a data page of the second version


def check_parquet(path: Path) -> None:
    """Raise ``ValueError`` if a number in the footer or in a page's header cannot be right.

    A file whose pages together unpack to too much is refused with a sentence (``DataError``).
    """
    size = path.stat().st_size
    limit = allowed(size)
    packed = unpacked = 0
    with path.open("rb") as file:
        file.seek(max(size - 8, 0))
        length, magic = int.from_bytes(file.read(4), "little"), file.read(4)
        if magic != _MAGIC or length + 12 > size:
            raise ValueError("no footer")
        file.seek(size - 8 - length)
        footer = _Thrift(file.read(length)).struct()
        _bounded(footer, limit)
        for group in footer[_ROW_GROUPS]:
            for column in group[_COLUMNS]:
                chunk = column[_CHUNK]
                at = min(chunk[_DATA_AT], chunk.get(_DICTIONARY_AT, 0) or chunk[_DATA_AT])
                end, values = at + chunk[_COMPRESSED], 0
                if not 0 <= at <= end <= size:
                    raise ValueError("a column lies outside the file")
                packed += end - at
                if packed > size:
                    raise ValueError("columns share their bytes")
                while at < end and values < chunk[_VALUES]:
                    file.seek(at)
                    header = _Thrift(file.read(_LARGEST_HEADER))
                    page = header.struct()
                    page.pop(_CHECKSUM, None)  # any number
                    _bounded(page, limit)
                    values += _page_values(page, chunk[_VALUES])
                    at += header.at + page[_PACKED]
                    unpacked += page[_UNPACKED]
                    if unpacked > limit:
                        raise refuse_expansion(path, size)
                if at > end:
                    raise ValueError("a page lies outside its column")


def _page_values(page: dict[int, Any], most: int) -> int:
    """How many of the column's values are in a page: none in a dictionary."""
    counts = [page[field][1] for field in _PAGES if field in page]
    if len(counts) != 1 or counts[0] > most:
        raise ValueError("a page has more values than its column")
    return 0 if _PAGES[1] in page else int(counts[0])


def _bounded(value: Any, limit: int) -> None:
    """Refuse a number in a structure that is negative, or too large for this file."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            _bounded(part, limit)
    elif isinstance(value, int) and not -1 <= value <= limit:
        raise ValueError(f"the number {value} is out of bounds")


class _Thrift:
    """The compact protocol as nested dictionaries by field number; text is skipped over."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.at = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > _DEEPEST:
            raise ValueError("structures are nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            kind, step = head & 15, head >> 4
            number = number + step if step else self._signed()
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth + 1)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        match kind:
            case 1 | 2 | 3:  # within a list, a boolean is a byte
                return self._byte()
            case 4 | 5 | 6:
                return self._signed()
            case 7:
                return self._skip(8)
            case 8:
                return self._skip(self._unsigned())
            case 9 | 10:
                return self._list(depth)
            case 12:
                return self.struct(depth)
        raise ValueError(f"there is no type {kind}")

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        count, kind = head >> 4, head & 15
        if count == 15:
            count = self._unsigned()
        if count > len(self._content) - self.at:  # every entry takes a byte at least
            raise ValueError("a list is longer than the file")
        return [self._value(kind, depth + 1) for _ in range(count)]

    def _byte(self) -> int:
        self._skip(1)
        return self._content[self.at - 1]

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self._content):
            raise ValueError("the structure does not end")

    def _unsigned(self) -> int:
        result = shift = 0
        while True:
            byte = self._byte()
            result |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return result
            if shift > 63:
                raise ValueError("a number does not end")

    def _signed(self) -> int:
        value = self._unsigned()
        return value >> 1 ^ -(value & 1)
