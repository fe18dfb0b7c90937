"""How a site shows that its data has the agreed schema, without showing the data.

The coordinator sends a number that it has drawn for this job. The site reads its own files, checks
them against the schema, and returns a hash of both and its name: it cannot be one that it has heard
elsewhere, and another schema gives another hash.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from fedcover.graphs.schema import Schema


def of(schema: Schema, nonce: NDArray[np.uint8], name: str) -> NDArray[np.uint8]:
    """32 bytes."""
    digest = hashlib.sha256(nonce.tobytes() + name.encode() + schema.fingerprint.encode())
    return np.frombuffer(digest.digest(), dtype=np.uint8)
