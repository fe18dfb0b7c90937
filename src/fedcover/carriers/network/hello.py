"""How a job begins: a site shows that its data has the agreed schema without showing the data, and
finds its number without being told who the others are.

The coordinator sends a number that it has drawn for this job. The site reads its own files, checks
them against the schema, and returns a hash of both and its name: it cannot be one that it has heard
elsewhere, and another schema gives another hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedcover.algorithm.checks import MOST_COUNTED
from fedcover.carriers.network.messages import Reply
from fedcover.errors import DataError
from fedcover.graphs.schema import Schema

HELLO, SITES = "data/hello", "data/sites"
"""The parts that a job begins with: who takes part, and with which number."""
COUNTED = ("nodes", "train", "valid", "calib", "test")
"""What of its nodes a site tells at the beginning."""


def proof(schema: Schema, nonce: NDArray[np.uint8], name: str) -> NDArray[np.uint8]:
    """32 bytes."""
    digest = hashlib.sha256(nonce.tobytes() + name.encode() + schema.fingerprint.encode())
    return np.frombuffer(digest.digest(), dtype=np.uint8)


def unfit(schema: Schema, nonce: NDArray[np.uint8], name: str, reply: Reply) -> str:
    """Why a site that said hello cannot take part."""
    content = reply.contents[0] if len(reply.contents) == 1 else {}
    if reply.problem or set(content) != {"proof", "counts"}:
        return reply.problem or "it does not say hello as it should."
    if not np.array_equal(content["proof"], proof(schema, nonce, name)):
        return "its schema is not the agreed one."
    counts = content["counts"]
    if counts.shape != (len(COUNTED),) or counts.dtype != np.int64:
        return "its numbers of nodes are not counts."
    if (counts < 0).any() or (counts > MOST_COUNTED).any():
        return "its numbers of nodes cannot be."
    if counts[0] < counts[1:].sum():  # more nodes than roles: some have no label
        return f"it has {counts[0]} nodes, but roles for {counts[1:].sum()}."
    return ""


def roll(job: str, names: Sequence[str]) -> NDArray[np.uint8]:
    """The sites of a job in their order: 32 bytes each, which a site can tell for its own name."""
    digests = [hashlib.sha256(f"{job} {name}".encode()).digest() for name in names]
    return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(len(names), -1)


def number_in(rolled: NDArray[np.uint8], job: str, name: str) -> int:
    """A site's own number, from the roll."""
    found = np.flatnonzero((rolled == roll(job, [name])).all(axis=1))
    if len(found) != 1:
        raise DataError(f"{name} is not one of the sites of the job {job}.")
    return int(found[0])
