"""Which items two parties both have, found privately: set intersection by Diffie-Hellman on P-256.

The *asker* sends each of its items :math:`x` as :math:`H(x)^a`, in an order that tells nobody else
which item is which. The *answerer* returns :math:`H(x)^{ab}` in the same order and its own items as
:math:`H(y)^b`, sorted. The asker takes its :math:`a` off and compares. Equal texts match, and
nothing else does.

The asker learns which of its items the answerer has, and how many the answerer has. The answerer
learns how many items the asker has, and not which of them match. Neither can guess an item of the
other, however few there are to guess from, without listing it: without :math:`a` and :math:`b` the
powers cannot be computed. Whoever carries the messages learns both numbers alone.

That holds of parties that keep to the protocol. One that does not can list what it has not, and so
learn or claim a match. An answerer that has one item in common can claim others, which it does not
know, if it guesses which of the points is that item: from :math:`H(x)` and :math:`H(x)^a` it can
make any number of pairs that look like matches. So nobody may show another party an item because
it matched. Messages must be sealed: one changed on its way may be read as fewer matches or as
others, and a carrier who may send a request of its own can ask.

A party keeps its secret, and nothing else, between messages: the private keys :math:`a` and
:math:`b` follow from it and from what is matched. So the same command gives the same messages, and
another list or request has another key. A secret should be of one pair of parties: with another
one, the same list would be seen to be the same.
"""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Any

from fedcover.errors import DataError, require, shown

_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256
_POINT, _TAG, _LEAST_SECRET = 33, 16, 16  # bytes


def request(items: Sequence[str], secret: bytes) -> bytes:
    """The asker's message: a tag that its answer must bear, and a point for each of its items."""
    listed = _digest(items)
    psi = _library()
    client = psi.client.CreateFromKey(_private_key(secret, b"ask", listed), True)
    hidden = [items[place] for place in _order(items, secret, listed)]
    return _tag(secret, listed) + b"".join(client.CreateRequest(hidden).encrypted_elements)


def reply(items: Sequence[str], message: bytes, secret: bytes) -> bytes:
    """The answerer's message: the tag, a point for each of its items, and the asker's points."""
    about = "the request to match items"
    tag, asked = message[:_TAG], _points(message[_TAG:], about)
    if len(tag) < _TAG:
        raise DataError(f"{about} is cut short.")
    psi = _library()
    key = _private_key(secret, b"answer", _digest(items) + hashlib.sha256(message).digest())
    server = psi.server.CreateFromKey(key, True)
    try:
        returned = server.ProcessRequest(
            psi.Request(reveal_intersection=True, encrypted_elements=asked)
        )
    except RuntimeError:
        raise _no_point(about) from None
    own = server.CreateSetupMessage(0.0, 1, list(items), psi.DataStructure.RAW).raw
    return b"".join([tag, *own.encrypted_elements, *returned.encrypted_elements])


def common(items: Sequence[str], secret: bytes, message: bytes) -> list[int]:
    """The positions, ascending, of the asker's items that both have, from the answer."""
    about = "the answer to match items"
    listed = _digest(items)
    if message[:_TAG] != _tag(secret, listed):
        raise DataError(f"{about} is not an answer to this request.")
    border = len(message) - _POINT * len(items)
    if border < _TAG:
        raise DataError(f"{about} is cut short.")
    others, returned = _points(message[_TAG:border], about), _points(message[border:], about)
    if others != sorted(others):
        raise DataError(f"{about} is not in order.")
    psi = _library()
    client = psi.client.CreateFromKey(_private_key(secret, b"ask", listed), True)
    setup = psi.ServerSetup(raw=psi.ServerSetup.RawInfo(encrypted_elements=others))
    try:
        found = client.GetIntersection(setup, psi.Response(encrypted_elements=returned))
    except RuntimeError:
        raise _no_point(about) from None
    order = _order(items, secret, listed)
    return sorted(order[place] for place in found)


def _library() -> Any:
    require("neighbours", "Private matching")
    import private_set_intersection.python as psi

    return psi


def _digest(items: Sequence[str]) -> bytes:
    """What tells this list from any other; one that is not a list of different texts is refused."""
    seen: set[str] = set()
    digest = hashlib.sha256()
    for item in items:
        if item in seen:
            raise DataError(f"the item {shown(item)} to be matched is listed twice.")
        seen.add(item)
        try:
            text = item.encode()
        except UnicodeEncodeError:
            raise DataError(f"the item {shown(item)} to be matched is not Unicode text.") from None
        digest.update(len(text).to_bytes(8, "little") + text)
    return digest.digest()


def _private_key(secret: bytes, role: bytes, about: bytes) -> bytes:
    """A number from 1 to the order, exclusive; of 512 bits, so that all are as likely."""
    if len(secret) < _LEAST_SECRET:
        raise ValueError(f"a secret must have {_LEAST_SECRET} bytes, but has {len(secret)}.")
    number = int.from_bytes(hmac.digest(secret, b"fedcover " + role + b"\0" + about, "sha512"))
    return (number % (_ORDER - 1) + 1).to_bytes(32)


def _order(items: Sequence[str], secret: bytes, listed: bytes) -> list[int]:
    """The items' positions, in an order that follows from the secret."""
    key = hmac.digest(secret, b"fedcover order\0" + listed, "sha256")
    rank = [hmac.digest(key, item.encode(), "sha256") for item in items]
    return sorted(range(len(items)), key=rank.__getitem__)


def _tag(secret: bytes, listed: bytes) -> bytes:
    return hmac.digest(secret, b"fedcover tag\0" + listed, "sha256")[:_TAG]


def _points(data: bytes, about: str) -> list[bytes]:
    if len(data) % _POINT:
        raise DataError(f"{about} is cut short.")
    points = [data[start : start + _POINT] for start in range(0, len(data), _POINT)]
    if len(set(points)) < len(points):
        raise DataError(f"{about} has an item twice.")
    return points


def _no_point(about: str) -> DataError:
    return DataError(f"{about} has an item that is no point of the curve.")
