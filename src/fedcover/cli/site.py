"""``fedcover site`` and ``fedcover partition``: a party's folder, and its part in a federation."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fedcover.cli import options
from fedcover.cli.options import Data, Graph, argument, examples, group, number, option, words
from fedcover.errors import DataError, UsageError, require

if TYPE_CHECKING:
    from torch_geometric.data import Data as PartyGraph

app = group(
    "A party's side of a federation: init, run.",
    "fedcover site init hospital-a --labels cold,flu,other",
    "fedcover site run hospital-a --insecure",
)
PARTITION_EXAMPLES = examples(
    "fedcover partition cora --clients 3 --out sites",
    "fedcover partition my-graph --partition given",
)

Folder = Annotated[Path, argument("DIR", "Folder with nodes and edges.")]


@app.command(
    "init",
    epilog=examples(
        "fedcover site init hospital-a --labels cold,flu,other",
        "fedcover site init hospital-b --schema hospital-a/schema.json",
    ),
)
def init(
    folder: Folder,
    schema: Annotated[Path | None, option("FILE", "The agreed schema (default: make it).")] = None,
    labels: Annotated[
        str | None, option("A,B,…", "All labels, if the party that makes the schema lacks some.")
    ] = None,
    match: options.Match = None,
) -> None:
    """Check a party's folder, and that it has the agreed schema; without one, make it."""
    from fedcover.files import write_whole
    from fedcover.graphs.readers import read_folder, read_schema_of
    from fedcover.graphs.schema import read_schema
    from fedcover.graphs.sites import SCHEMA_FILE

    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder.")
    if schema and labels:
        raise UsageError("--labels are for the party that makes the schema; --schema has its own.")
    agreed = read_schema(schema) if schema else read_schema_of(folder, match=match)
    if labels is not None:
        agreed = replace(agreed, labels=words("labels", labels) or ())
    graph = read_folder(folder, agreed, match=match)
    target = folder / SCHEMA_FILE
    if target.exists() and read_schema(target) != agreed:
        raise UsageError(
            f"{target} is another schema than {schema or 'that of the nodes'}; delete it to agree "
            "on a new one."
        )
    write_whole(target, f"{agreed.to_json()}\n".encode())
    edges, unlabelled = graph.edge_index.shape[1] // 2, int((graph.y < 0).sum())
    without = f" ({unlabelled} without a label)" if unlabelled else ""
    print(
        f"{folder}: {graph.num_nodes} nodes{without}, {edges} edges, "
        f"{len(agreed.feature_names)} features, {len(agreed.labels)} labels\n"
        f"{_links(graph)}"
        f"schema: {target}\nfingerprint: {agreed.fingerprint}"
    )


def _links(graph: "PartyGraph") -> str:
    """A line about the edges to other parties that the folder lists, if it does."""
    from collections import Counter

    from fedcover.config.settings import NeighbourSettings

    least = NeighbourSettings().least
    if "match_keys" in graph:
        keyed = sum(key is not None for key in graph.match_keys)
        return (
            f"keys ({graph.match_column}): {keyed} nodes have one; other parties' nodes with the "
            "same are their neighbours\n"
        )
    if "links" not in graph:
        return ""
    to = ", ".join(f"{count} to {party}" for party, count in graph.links.by_party.items())
    enough = sum(count >= least for count in Counter(graph.links.node.tolist()).values())
    return (
        f"links: {len(graph.links.node)}{f' ({to})' if to else ''}; nodes with {least} or more, "
        f"which +neighbours can give the sum of their far ends: {enough}, if the other parties "
        "list them, too\n"
    )


@app.command(
    "run",
    epilog=examples(
        "fedcover site run hospital-a --superlink coordinator:8000 --key site.key "
        "--root-certificates ca.crt",
        "fedcover site run hospital-a --insecure",
    ),
)
def run(
    folder: Folder,
    superlink: Annotated[str, option("HOST:PORT", "The coordinator's address.")] = "127.0.0.1:8000",
    root_certificates: Annotated[
        Path | None, option("FILE", "The authority that signed its certificate.")
    ] = None,
    key: Annotated[Path | None, option("FILE", "The site's private key.")] = None,
    name: Annotated[str | None, option("NAME", "The site's name (default: DIR's).")] = None,
    work: Annotated[Path | None, option("DIR", "For ledger, sets, memory (default: DIR).")] = None,
    port: Annotated[int | None, number("N", "A free port here, for the process itself.")] = None,
    match: options.Match = None,
    least_far_ends: Annotated[
        int | None, number("N", "Far ends in a sum of +neighbours, at least (default: 3).", 1)
    ] = None,
    threads: Annotated[int, number("N", "CPU threads for training.", least=1)] = 1,
    insecure: Annotated[
        bool, option(None, "Without TLS; for trying on one machine alone.", "--insecure")
    ] = False,
) -> None:
    """Take part in a federation, until stopped: wait for orders, answer them.

    Only their owner can read the files that it writes.
    """
    from fedcover.graphs.readers import read_schema_of

    require("flower", "fedcover site run")
    from fedcover.carriers.network.flower import free_port
    from fedcover.carriers.network.flower.node import run_node

    if insecure == (root_certificates is not None):
        raise UsageError("Give --root-certificates, or --insecure for trying on one machine.")
    for flag, file in (("root-certificates", root_certificates), ("key", key)):
        if file is not None and not file.is_file():
            raise DataError(f"--{flag} names {file}, which is not a file.")
    read_schema_of(folder, match=match)
    node = f'site="{folder.resolve()}" work="{(work or folder).resolve()}" name="{name or ""}"'
    if least_far_ends is not None:
        node += f" least-far-ends={least_far_ends}"
    arguments = ["--superlink", superlink]
    arguments += ["--insecure"] if insecure else ["--root-certificates", str(root_certificates)]
    if key is not None:
        arguments += ["--auth-supernode-private-key", str(key)]
    run_node([*arguments, "--node-config", node], port or free_port(), threads)


def partition(
    graph: Graph,
    clients: Annotated[int, number("K", "Number of sites.")] = 3,
    out: Annotated[Path | None, option("DIR", "Where to (default: GRAPH-K-sites).")] = None,
    method: Annotated[
        str, option("NAME", "metis, louvain, random, label-skew, given.", "--partition")
    ] = "metis",
    beta: Annotated[float, option("B", "Of label-skew: the smaller, the more sites differ.")] = 0.5,
    cut_edges: Annotated[
        str | None,
        option("NAME", "unknown, or known: both their sites list them (default: known of links)."),
    ] = None,
    known_share: Annotated[float, option("X", "Share of them that is known.")] = 1.0,
    seed: Annotated[int, number("N", "Of the partition and of the split.")] = 0,
    data: Data = None,
    match: options.Match = None,
) -> None:
    """Cut a graph into folders of sites, to try a federation with."""
    from fedcover.config import Config
    from fedcover.graphs import load
    from fedcover.graphs.check import check_graph
    from fedcover.graphs.links import link_facts
    from fedcover.graphs.sites import site_folders, write_sites
    from fedcover.party.data import known_edges
    from fedcover.simulation.repetition import prepare, settled

    given = method == "given"
    config = Config(
        clients=None if given else clients,
        partition=method,
        beta=beta,
        methods=("fed",),
        cut_edges=cut_edges,
        known_share=known_share,
    )
    loaded = check_graph(load(graph, data, match=match))
    config = settled(config, loaded)
    cut = prepare(loaded, config, seed)
    folder = out or Path(f"{loaded.name}-{cut.partition.clients}-sites")
    known = known_edges(loaded, cut.partition, config, seed)
    schema = write_sites(folder, loaded, cut.partition, cut.roles, known)
    lost, edges = cut.partition.cut_edges.shape[1] // 2, int(loaded.num_edges) // 2
    links = 0 if known is None else known.shape[1] // 2
    where = "are in none of the folders"
    if links:
        rest = f", the other {lost - links} are in none of the folders" if lost > links else ""
        where = f"{links} of them are links of both sites{rest}"
    names = ", ".join(site.name for site in site_folders(folder))
    print(
        f"{folder}: {names}; {lost} edges between them, {lost / max(edges, 1):.1%} of all, "
        f"{where}\n"
        f"fingerprint: {schema.fingerprint}"
    )
    for said in link_facts(loaded).sentences():
        print(said)
