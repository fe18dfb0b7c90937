"""Keys, sealed messages, masks and noise, beside the standards and a second way to compute them."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedcover.errors import DataError
from fedcover.sealing import Keys, gaussian, mask, seal, unseal

# RFC 7748, section 6.1.
ALICE = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
ALICE_PUBLIC = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
BOB = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"
BOB_PUBLIC = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
AGREED = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
# RFC 8439, appendix A.1: the stream of a key of zeros.
STREAM = (
    "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
)
KEY = bytes(range(32))


def keys(private: str) -> Keys:
    return Keys(X25519PrivateKey.from_private_bytes(bytes.fromhex(private)))


def word(name: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(name), np.uint8)


def hkdf(secret: bytes, info: bytes) -> bytes:
    """RFC 5869 with SHA-256, no salt, one block."""
    return hmac.digest(hmac.digest(bytes(32), secret, "sha256"), info + b"\1", "sha256")


def chacha(key: bytes, counter: int, nonce: bytes) -> bytes:
    """One block of RFC 8439, section 2.3."""
    start = list(np.frombuffer(b"expand 32-byte k" + key, "<u4"))
    start += [counter, *np.frombuffer(nonce, "<u4")]
    state = [int(one) for one in start]
    quarters = [(k, k + 4, k + 8, k + 12) for k in range(4)]
    quarters += [(k, 4 + (k + 1) % 4, 8 + (k + 2) % 4, 12 + (k + 3) % 4) for k in range(4)]
    for _ in range(10):
        for a, b, c, d in quarters:
            for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                state[x] = (state[x] + state[y]) % 2**32
                mixed = state[z] ^ state[x]
                state[z] = (mixed << turn | mixed >> (32 - turn)) % 2**32
    both = zip(state, start, strict=True)
    return b"".join((int(a + int(b)) % 2**32).to_bytes(4, "little") for a, b in both)


def poly1305(key: bytes, message: bytes) -> bytes:
    """RFC 8439, section 2.5."""
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    total = 0
    for start in range(0, len(message), 16):
        total += int.from_bytes(message[start : start + 16] + b"\1", "little")
        total = total * r % (2**130 - 5)
    total += int.from_bytes(key[16:], "little")
    return (total % 2**128).to_bytes(16, "little")


# Keys.


def test_public_keys_and_what_both_agree_on_are_those_of_the_standard() -> None:
    alice, bob = keys(ALICE), keys(BOB)
    assert alice.public.tobytes().hex() == ALICE_PUBLIC
    assert bob.public.tobytes().hex() == BOB_PUBLIC
    both = b"".join(sorted(map(bytes.fromhex, (ALICE_PUBLIC, BOB_PUBLIC))))
    expected = hkdf(bytes.fromhex(AGREED), b"fedcover shared key\0" + both + b"purpose")
    assert alice.shared(bob.public, "purpose") == expected
    assert bob.shared(alice.public, "purpose") == expected


@given(st.binary(min_size=16, max_size=40), st.binary(min_size=16, max_size=40), st.text())
@settings(max_examples=40, deadline=None)
def test_both_ends_have_the_same_key_and_other_purposes_another(
    one: bytes, other: bytes, purpose: str
) -> None:
    left, right = Keys.derive(one, "here"), Keys.derive(other, "there")
    assert left.shared(right.public, purpose) == right.shared(left.public, purpose)
    assert left.shared(right.public, purpose) != left.shared(right.public, purpose + "'")


def test_another_secret_or_context_or_partner_has_another_key() -> None:
    secret, more = bytes(16), bytes(17)
    made = [Keys.derive(secret, "a"), Keys.derive(secret, "b"), Keys.derive(more, "a")]
    assert len({own.public.tobytes() for own in made}) == 3
    assert Keys.derive(secret, "a").public.tobytes() == made[0].public.tobytes()
    bob = keys(BOB)
    assert len({bob.shared(own.public, "p") for own in made}) == 3


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="must have 16 bytes, but has 15"):
        Keys.derive(bytes(15), "context")


P = 2**255 - 19
LOW_ORDER = (
    *(0, 1, P - 1),
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)


@pytest.mark.parametrize("number", [*LOW_ORDER, P, P + 1, P + 9, 2**255 + 9, 2**256 - 1])
def test_points_of_low_order_and_second_spellings_are_refused(number: int) -> None:
    point = np.frombuffer(number.to_bytes(32, "little"), np.uint8)
    with pytest.raises(DataError, match="not one that a private key can have"):
        keys(ALICE).shared(point, "purpose")


@pytest.mark.parametrize(
    "public",
    [word(BOB_PUBLIC)[:31], word(BOB_PUBLIC).view(np.int8), word(BOB_PUBLIC)[None]],
    ids=["short", "signed", "two axes"],
)
def test_what_is_not_32_bytes_is_refused(public: np.ndarray) -> None:
    with pytest.raises(DataError, match="must be 32 bytes"):
        keys(ALICE).shared(public, "purpose")


def test_ones_own_key_is_not_that_of_another() -> None:
    with pytest.raises(DataError, match="its own public key"):
        keys(ALICE).shared(word(ALICE_PUBLIC), "purpose")


# Sealed messages.


def test_the_second_way_to_compute_a_stream_is_right() -> None:
    assert chacha(bytes(32), 0, bytes(12)).hex() == STREAM


@pytest.mark.parametrize("content", [b"", b"word", bytes(100)])
def test_a_message_is_sealed_as_the_standard_says(content: bytes) -> None:
    """RFC 8439, section 2.8, written once more."""
    about = "request 0 1"
    sealed = seal(KEY, content, about).tobytes()
    nonce, hidden, tag = sealed[:12], sealed[12:-16], sealed[-16:]
    stream = b"".join(chacha(KEY, 1 + k, nonce) for k in range(2))
    assert bytes(a ^ b for a, b in zip(hidden, stream, strict=False)) == content
    sizes = len(about).to_bytes(8, "little") + len(hidden).to_bytes(8, "little")
    padded = [part + bytes(-len(part) % 16) for part in (about.encode(), hidden)]
    assert poly1305(chacha(KEY, 0, nonce)[:32], b"".join(padded) + sizes) == tag


@given(st.binary(max_size=300), st.text(max_size=20), st.binary(min_size=32, max_size=32))
@settings(max_examples=50, deadline=None)
def test_sealed_content_comes_back(content: bytes, about: str, key: bytes) -> None:
    sealed = seal(key, content, about)
    assert (sealed.dtype, len(sealed)) == (np.uint8, len(content) + 28)
    assert unseal(key, sealed, about) == content


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_nothing_of_it_can_be_changed(data: st.DataObject) -> None:
    sealed = seal(KEY, b"a, b and c", "links 0 1")
    change = data.draw(st.sampled_from(["bit", "cut", "longer", "turned"]))
    other = sealed.copy()
    if change == "bit":
        other[data.draw(st.integers(0, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    elif change == "cut":
        other = other[: data.draw(st.integers(0, len(sealed) - 1))]
    elif change == "longer":
        other = np.append(other, np.uint8(data.draw(st.integers(0, 255))))
    else:
        other = np.roll(other, data.draw(st.integers(1, len(sealed) - 1)))
    with pytest.raises(DataError, match="'links 0 1' was changed on its way, or is another one"):
        unseal(KEY, other, "links 0 1")


def test_another_key_or_occasion_does_not_open_it() -> None:
    sealed = seal(KEY, b"content", "links 0 1")
    for key, about in ((KEY[::-1], "links 0 1"), (KEY, "links 1 0"), (KEY, "places 0 1")):
        with pytest.raises(DataError, match="was changed on its way"):
            unseal(key, sealed, about)


def test_other_contents_and_occasions_have_other_nonces() -> None:
    """Two contents under one nonce would show their difference."""
    sealed = [
        *(seal(KEY, content, "a") for content in (b"", b"x", b"y", b"xa")),
        *(seal(KEY, b"x", about) for about in ("", "b", "ax")),
    ]
    assert len({one[:12].tobytes() for one in sealed}) == len(sealed)
    assert np.array_equal(seal(KEY, b"x", "a"), sealed[1])


# Masks and noise.


@pytest.mark.parametrize("kind", [np.uint16, np.uint32, np.uint64])
def test_a_mask_is_the_stream_of_the_standard(kind: type[np.unsignedinteger]) -> None:
    found = mask(bytes(32), 64 // np.dtype(kind).itemsize, kind)
    assert found.dtype == kind
    assert found.astype(found.dtype.newbyteorder("<")).tobytes().hex() == STREAM


@given(st.integers(0, 70_000), st.integers(0, 70_000))
@settings(max_examples=20, deadline=None)
def test_a_longer_mask_begins_like_a_shorter_one(one: int, other: int) -> None:
    """Across the border of what is drawn at once."""
    short, long = sorted((one, other))
    assert np.array_equal(mask(KEY, long, np.uint16)[:short], mask(KEY, short, np.uint16))


def test_blocks_follow_each_other_far_into_a_mask() -> None:
    found = mask(KEY, 2**17 // 8 + 8, np.uint64).tobytes()
    for block in (0, 1, 1023, 1024, 1025, 2047, 2048):
        assert found[64 * block : 64 * block + 64] == chacha(KEY, block, bytes(12))


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.float64])
def test_other_words_are_refused(kind: type) -> None:
    with pytest.raises(ValueError, match="unsigned words of 16, 32 or 64 bits"):
        mask(KEY, 3, kind)


def test_masks_look_random_and_those_of_two_keys_have_nothing_in_common() -> None:
    one, other = (mask(hashlib.sha256(name).digest(), 20_000, np.uint16) for name in (b"a", b"b"))
    for words in (one, other, one - other):
        counts = np.bincount(words.view(np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-3


def test_gaussian_numbers_are_standard_normal_and_repeat() -> None:
    found = gaussian(KEY, 200_000)
    assert stats.kstest(found, "norm").pvalue > 1e-3
    assert abs(found.mean()) < 4 / np.sqrt(200_000)
    assert found.std() == pytest.approx(1, abs=4 / np.sqrt(400_000))
    assert stats.kurtosis(found) == pytest.approx(0, abs=0.05)
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.01
    assert np.array_equal(gaussian(KEY, 5), found[:5])
    assert not np.isclose(gaussian(KEY[::-1], 5), found[:5]).any()


def test_no_word_of_the_stream_is_infinite_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = np.array([0, 2**63, 2**63 - 1, 0, 0, 0], dtype=np.uint64)
    monkeypatch.setattr("fedcover.sealing.mask", lambda *_: ends)
    low, high, middle = gaussian(KEY, 3)
    assert low < -12
    assert high > 12
    assert abs(middle) < 1e-15
