"""``fedcover inspect``: a graph and its clients, before anything is trained."""

import json
from dataclasses import asdict
from typing import Annotated

from fedcover.cli.options import (
    Data,
    Graph,
    Group,
    Match,
    Missing,
    examples,
    given,
    option,
    with_settings,
)
from fedcover.errors import DataError

EXAMPLES = examples(
    "fedcover inspect cora --clients 20 --alpha 0.05 --alpha 0.01",
    "fedcover inspect my-graph --partition given",
    "fedcover inspect my-graph --clients 5 --json",
)
SEED = 0  # of the partition and the split: a run's first
Command = with_settings(
    "clients", "partition", "beta", "cut_edges", "known_share", "neighbour_least", "test"
)


def inspect(
    graph: Graph,
    missing: Missing = "refuse",
    group: Group = None,
    match: Match = None,
    alpha: Annotated[
        list[float] | None, option("A", "A level of error; may be repeated (default: as in run).")
    ] = None,
    as_json: Annotated[bool, option(None, "One JSON object in place of tables.", "--json")] = False,
    data: Data = None,
) -> None:
    """Say what a graph and its clients hold, and what can be promised for it; train nothing.

    The partition and the calibration nodes are those of run's first seed.

    Exit status 1, after the tables, where run would refuse to split the nodes.
    """
    from fedcover.config import Config
    from fedcover.display import graphs, terminal
    from fedcover.graphs import check_graph, load
    from fedcover.graphs.inspection import inspect as inspect_graph
    from fedcover.graphs.partition import partition as divide
    from fedcover.party.data import known_edges
    from fedcover.simulation.repetition import prepare, settled

    loaded = check_graph(load(graph, data, missing=missing, group=group, match=match))
    config = settled(Config.preset("default", alphas=alpha or None, **given()), loaded)
    refusal = None
    try:
        repetition = prepare(loaded, config, SEED)
        parts, roles = repetition.partition, repetition.roles
    except DataError as error:  # a client too small to split is still worth looking at
        refusal = error
        parts, roles = divide(loaded, config.clients, config.partition, SEED, config.beta), None
    known = known_edges(loaded, parts, config, SEED)
    least = config.neighbour.least
    found = inspect_graph(loaded, parts, roles, config.alphas, known, least)
    if as_json:
        print(json.dumps(asdict(found) | {"sentences": found.sentences()}, ensure_ascii=False))
    else:
        graphs.inspection(terminal.console(), found)
    if refusal is not None:
        raise refusal
