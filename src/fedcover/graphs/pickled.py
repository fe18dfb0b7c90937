"""What a pickle of arrays spells, read without unpickling: nothing it names is ever called.

Python's unpickler calls whatever a file asks for. This one knows how lists, dictionaries, numpy's
arrays and scipy's CSR matrices are spelt, and builds them from the bytes that are there; what it
holds is therefore never more than a small multiple of the file: what is copied of a thing that a
pickle names again and again is counted.
"""

from __future__ import annotations

import io
import pickletools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcover.errors import DataError

_NAMES = {
    ("__builtin__", "list"): "list",
    ("collections", "defaultdict"): "defaultdict",
    ("numpy", "dtype"): "dtype",
    ("numpy", "ndarray"): "ndarray",
    ("numpy.core.multiarray", "_reconstruct"): "array",
    ("scipy.sparse.csr", "csr_matrix"): "csr",
    # The same, as files saved again today spell it.
    ("builtins", "list"): "list",
    ("numpy._core.multiarray", "_reconstruct"): "array",
    ("scipy.sparse._csr", "csr_matrix"): "csr",
}
_KINDS = frozenset("biuf")  # of numbers; nothing else is read into an array
_MARK = object()


@dataclass
class Csr:
    """A CSR matrix as it is spelt: its parts are what the file says, not checked."""

    parts: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Dtype:
    code: str
    order: str = "="


@dataclass
class _Array:
    values: NDArray[Any] | None = None


@dataclass(frozen=True)
class _Name:
    what: str


def read_pickled(content: bytes) -> Any:
    """Lists, dictionaries, numbers, text, arrays (numpy) and matrices (:class:`Csr`).

    Raises :class:`DataError` with the rest of a sentence that begins with the file.
    """
    machine = _Machine(len(content))
    try:
        for opcode, argument, _ in pickletools.genops(io.BytesIO(content)):
            machine.step(opcode.name, argument)
        return _plain(machine.stack[-1])
    except DataError:
        raise
    except Exception as error:  # a damaged one can be wrong in any way
        raise DataError("is not a readable Planetoid file") from error


class _Machine:
    """The stack and the memo of a pickle; every opcode that is not known is refused."""

    def __init__(self, size: int) -> None:
        self.stack: list[Any] = []
        self._left = size  # entries of lists and bytes of arrays that may still be copied
        self._memo: dict[int, Any] = {}

    def step(self, opcode: str, argument: Any) -> None:
        stack = self.stack
        if opcode in _IGNORED:
            return
        if opcode in _CONSTANTS:
            stack.append(_CONSTANTS[opcode])
        elif opcode in _LITERALS:
            stack.append(argument)
        elif opcode in ("EMPTY_LIST", "EMPTY_DICT"):
            stack.append([] if opcode == "EMPTY_LIST" else {})
        elif opcode == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif opcode in ("PUT", "BINPUT", "LONG_BINPUT"):
            self._memo[int(argument)] = stack[-1]
        elif opcode in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self._memo[int(argument)])
        elif opcode == "MARK":
            stack.append(_MARK)
        elif opcode in ("TUPLE1", "TUPLE2", "TUPLE3"):
            stack.append(tuple(self._last(int(opcode[-1]))))
        elif opcode in ("TUPLE", "LIST"):
            items = self._since_mark()
            stack.append(tuple(items) if opcode == "TUPLE" else items)
        elif opcode == "DICT":
            stack.append(_paired(self._since_mark()))
        elif opcode in ("APPEND", "APPENDS"):
            items = self._last(1) if opcode == "APPEND" else self._since_mark()
            _as(list, stack[-1]).extend(items)
        elif opcode in ("SETITEM", "SETITEMS"):
            items = self._last(2) if opcode == "SETITEM" else self._since_mark()
            _as(dict, stack[-1]).update(_paired(items))
        elif opcode == "GLOBAL":
            stack.append(_named(*argument.split(" ", 1)))
        elif opcode == "STACK_GLOBAL":
            stack.append(_named(*self._last(2)))
        elif opcode in ("REDUCE", "NEWOBJ"):
            name, arguments = self._last(2)
            made = _made(_as(_Name, name).what, _as(tuple, arguments))
            self._count(made)
            stack.append(made)
        elif opcode == "BUILD":
            (state,) = self._last(1)
            _fill(stack[-1], state)
            self._count(stack[-1])
        else:
            raise DataError(f"is refused as a Planetoid file: it has the opcode {opcode}")

    def _count(self, made: Any) -> None:
        """Refuse more copies than a file without repetitions could ask for."""
        if isinstance(made, _Array) and made.values is not None:
            self._left -= made.values.nbytes
        elif isinstance(made, list):
            self._left -= len(made)
        if self._left < 0:
            raise DataError("is refused as a Planetoid file: it copies the same content repeatedly")

    def _last(self, count: int) -> list[Any]:
        items = self.stack[-count:]
        if len(items) < count or any(item is _MARK for item in items):
            raise ValueError("the stack is too short")
        del self.stack[-count:]
        return items

    def _since_mark(self) -> list[Any]:
        items = []
        while (item := self.stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]


_IGNORED = frozenset(("PROTO", "FRAME", "STOP"))
_CONSTANTS: dict[str, Any] = {
    "NONE": None,
    "NEWTRUE": True,
    "NEWFALSE": False,
    "EMPTY_TUPLE": (),
}
_LITERALS = frozenset(
    (
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    )
)


def _as(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{type(value).__name__} where a {kind.__name__} belongs")
    return value


def _paired(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2], strict=True))


def _named(module: str, name: str) -> _Name:
    if (module, name) not in _NAMES:
        raise DataError(f"is refused as a Planetoid file: it asks for {module}.{name}")
    return _Name(_NAMES[module, name])


def _made(what: str, arguments: tuple[Any, ...]) -> Any:
    """What the named thing would give, still without content."""
    if what == "list":
        return list(_as(list, arguments[0])) if arguments else []
    if what == "defaultdict":
        return {}
    if what == "dtype":
        return _Dtype(_as(str, arguments[0]))
    if what == "array":
        return _Array()
    if what == "csr":
        return Csr()
    raise TypeError(f"{what} is not made so")


def _fill(thing: Any, state: Any) -> None:
    """Give it the content that the file has for it."""
    if isinstance(thing, _Dtype):
        thing.order = _as(str, state[1])
    elif isinstance(thing, _Array):
        _, shape, dtype, fortran, raw = state
        thing.values = _values(shape, _as(_Dtype, dtype), bool(fortran), raw)
    elif isinstance(thing, Csr):
        thing.parts = _as(dict, state)
    else:
        raise TypeError(f"{type(thing).__name__} has no content of its own")


def _values(shape: tuple[int, ...], spelt: _Dtype, fortran: bool, raw: Any) -> NDArray[Any]:
    dtype = np.dtype(spelt.code)
    if dtype.kind not in _KINDS or dtype.itemsize > 8:
        raise TypeError(f"arrays of {dtype} are not read")
    if spelt.order == ">":
        dtype = dtype.newbyteorder(">")
    content = raw.encode("latin1") if isinstance(raw, str) else _as(bytes, raw)
    flat = np.frombuffer(content, dtype=dtype)
    return flat.reshape(shape, order="F" if fortran else "C").astype(dtype.newbyteorder("="))


def _plain(value: Any) -> Any:
    """The arrays in place of what stood for them."""
    if isinstance(value, _Array):
        if value.values is None:
            raise ValueError("an array has no content")
        return value.values
    if isinstance(value, Csr):
        return Csr({name: _plain(part) for name, part in value.parts.items()})
    return value
