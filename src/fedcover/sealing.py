"""What two parties keep from whoever carries their messages: keys, sealed content, masks, noise.

Two parties agree on keys by X25519 (RFC 7748): each sends its public key, and both compute the same
keys, one for each purpose. The carrier sees the public keys and learns nothing from them; but keys
that a carrier exchanges for its own are accepted here, so that parties who do not trust it to pass
them on must compare them. Everything follows from the parties' secrets: the same command gives the
same messages.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedcover.errors import DataError, require, shown

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

Bytes = NDArray[np.uint8]
Word = TypeVar("Word", bound=np.unsignedinteger[Any])

_KEY, _NONCE, _LEAST_SECRET = 32, 12, 16  # bytes
_FIELD = 2**255 - 19  # coordinates of the curve lie below; each has one spelling there
_AT_ONCE = 2**16  # bytes of a mask, few enough for the fast caches


class Keys:
    """A party's private key, its public key, and the keys that it shares with other parties."""

    def __init__(self, private: X25519PrivateKey) -> None:
        self._private = private
        self._public = private.public_key().public_bytes_raw()

    @classmethod
    def derive(cls, secret: bytes, context: str) -> Keys:
        """The keys that follow from a party's secret; other contexts have independent keys."""
        require("neighbours", "An exchange between parties")
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        if len(secret) < _LEAST_SECRET:
            raise ValueError(f"a secret must have {_LEAST_SECRET} bytes, but has {len(secret)}.")
        key = _derived(secret, b"fedcover private key\0" + context.encode())
        return cls(X25519PrivateKey.from_private_bytes(key))

    @property
    def public(self) -> Bytes:
        """The public key, 32 bytes, to be sent to the other parties."""
        return np.frombuffer(self._public, np.uint8)

    def shared(self, other_public: Bytes, purpose: str) -> bytes:
        r"""The key that both parties have for this purpose alone, 32 bytes.

        .. math:: \mathrm{HKDF}(\mathrm{X25519}(a, B), A \Vert B \Vert \text{purpose}),

        with the public keys in sorted order.
        """
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        other = other_public.tobytes()
        if other_public.dtype != np.uint8 or other_public.shape != (_KEY,):
            raise DataError(f"a public key must be {_KEY} bytes.")
        if other == self._public:
            raise DataError("a party was given its own public key as that of another.")
        try:
            if int.from_bytes(other, "little") >= _FIELD:
                raise ValueError
            agreed = self._private.exchange(X25519PublicKey.from_public_bytes(other))
        except ValueError:  # also of points of low order, with which every key agrees on zero
            raise DataError("a public key is not one that a private key can have.") from None
        both = b"".join(sorted((self._public, other)))
        return _derived(agreed, b"fedcover shared key\0" + both + purpose.encode())


def _derived(secret: bytes, info: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), _KEY, salt=None, info=info).derive(secret)


def seal(key: bytes, content: bytes, about: str) -> Bytes:
    """Content that only who has the key can read or change: ChaCha20-Poly1305 (RFC 8439).

    ``about`` says who sends what to whom; it is not sent, and must be the same at unsealing.

    The nonce is the start of HMAC-SHA256(key, about, content) and goes in front. So the same
    content is sealed the same way each time, which a reader on the way can see. Different contents
    of one key would have to meet in 96 bits to share a nonce: among four billion of them, the
    chance that any two do is below one in eight billion.
    """
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    aside = about.encode()
    told = len(aside).to_bytes(8, "little") + aside + content
    nonce = hmac.digest(key, told, "sha256")[:_NONCE]
    sealed = ChaCha20Poly1305(key).encrypt(nonce, content, aside)
    return np.frombuffer(nonce + sealed, np.uint8)


def unseal(key: bytes, sealed: Bytes, about: str) -> bytes:
    """The content of :func:`seal`; refused if a bit of it, the key or ``about`` is another."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    data = sealed.tobytes()
    try:
        if len(data) < _NONCE:
            raise InvalidTag
        return ChaCha20Poly1305(key).decrypt(data[:_NONCE], data[_NONCE:], about.encode())
    except InvalidTag:
        raise DataError(
            f"the sealed message {shown(about)} was changed on its way, or is another one."
        ) from None


def mask(key: bytes, words: int, dtype: type[Word] | np.dtype[Word]) -> NDArray[Word]:
    """Unsigned words of 16, 32 or 64 bits that look random without the key: ChaCha20's stream.

    It always begins at the same place: a key is for one mask, or for one :func:`gaussian`, and for
    nothing else. Two contents under one mask would show their difference.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    kind = np.dtype(dtype)
    if kind.kind != "u" or kind.itemsize == 1:
        raise ValueError(f"a mask has unsigned words of 16, 32 or 64 bits, not {kind}.")
    stream = np.empty(words, kind.newbyteorder("<"))
    raw, zeros = stream.view(np.uint8).data, bytes(_AT_ONCE)
    cipher = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    for start in range(0, len(raw), _AT_ONCE):
        part = raw[start : start + _AT_ONCE]
        cipher.update_into(zeros[: len(part)], part)
    return stream.astype(kind, copy=False)


def gaussian(key: bytes, count: int) -> NDArray[np.float64]:
    """Standard normal numbers from the stream of :func:`mask`: by a sign and 127 bits of the tail's
    probability, so that its far values are as dense as the near ones."""
    from scipy.special import ndtri

    high, low = mask(key, 2 * count, np.uint64).reshape(2, count)
    negative, tail = high >> np.uint64(63), (high & np.uint64(2**63 - 1)).astype(np.float64)
    tail += (low.astype(np.float64) + 0.5) * 2.0**-64
    normal: NDArray[np.float64] = ndtri(tail * 2.0**-64)
    return np.where(negative, -normal, normal)
