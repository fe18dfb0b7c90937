"""``fedcover data``: the named graphs."""

from typing import Annotated

from fedcover.cli.options import Data, Graph, argument, examples, group, number

app = group(
    "The named graphs: list, show, fetch, cuts.", "fedcover data list", "fedcover data show cora"
)


@app.command("list", epilog=examples("fedcover data list"))
def list_(data: Data = None) -> None:
    """Name every graph, where it would come from, and its published statistics."""
    from fedcover.display import graphs, terminal
    from fedcover.graphs.statistics import list_rows

    graphs.datasets(terminal.console(), list_rows(data))


@app.command("show", epilog=examples("fedcover data show cora", "fedcover data show my-graph"))
def show(graph: Graph, data: Data = None) -> None:
    """Print one graph's statistics beside the published ones."""
    from fedcover.display import graphs, terminal
    from fedcover.graphs.statistics import show_rows

    graphs.graph(terminal.console(), show_rows(graph, data))


@app.command("fetch", epilog=examples("fedcover data fetch citeseer"))
def fetch(
    name: Annotated[str, argument("NAME", "One that fedcover data list shows.")],
) -> None:
    """Download one graph's raw files into the cache."""
    from fedcover.graphs import fetch

    where = fetch(name)
    print(f"{name}: {where}" if where else f"{name} is part of the package.")


@app.command("cuts", epilog=examples("fedcover data cuts cora --seeds 2"))
def cuts(
    names: Annotated[
        list[str] | None, argument("[NAME...]", "cora, citeseer (default: both).")
    ] = None,
    seeds: Annotated[int, number("N", "METIS seeds to average over.", least=1)] = 5,
    data: Data = None,
) -> None:
    """Count the edges that the partition cuts, beside the paper's missing edges."""
    from fedcover.display import graphs, terminal
    from fedcover.graphs.statistics import missing_edges_rows

    graphs.cuts(terminal.console(), missing_edges_rows(data, range(seeds), names))
