"""What three poisoned sites of ten do to a federation, with plain and with robust averaging.

The three send their weights turned round and five times as large; everything else is honest. Set
sizes, coverage and accuracy are those of the seven honest sites on Cora (LAC, level 0.9).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import fedcover
from fedcover.carriers.network.coordinator import Coordinator
from fedcover.carriers.network.job import Job
from fedcover.carriers.network.member import InProcess, Member
from fedcover.carriers.network.messages import Order, Reply
from fedcover.config.names import AVERAGES
from fedcover.graphs.sites import site_folders, write_sites
from fedcover.models.gnn import WEIGHTS
from fedcover.simulation.repetition import prepare

SITES, POISONED, ROUNDS, ALPHA = 10, 3, 60, 0.1
FACTOR = 5


class Poisoned(InProcess):
    """Some members' weights are turned round on their way."""

    def __init__(self, members: list[Member], poisoned: int) -> None:
        super().__init__(members)
        self._bad = {member.name for member in members[:poisoned]}

    def exchange(self, orders: Mapping[str, Order], seconds: float) -> Iterator[tuple[str, Reply]]:
        """As the members answer, apart from the weights."""
        for name, reply in super().exchange(orders, seconds):
            if name in self._bad and WEIGHTS[0] in reply.contents[0]:
                (content,) = reply.contents
                turned = {key: -FACTOR * content[key] for key in WEIGHTS}
                reply = replace(reply, contents=({**content, **turned},))
            yield name, reply


def main() -> None:
    graph = fedcover.load("cora")
    config = fedcover.Config(
        methods=("fed",),
        seeds=1,
        partition="given",
        rounds=ROUNDS,
        alphas=(ALPHA,),
        unit_features=True,
    )
    cut = prepare(graph, fedcover.Config(clients=SITES), 0)
    print("| average | poisoned sites | accuracy | set size | covers | covers at the three |")
    print("|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        sites = Path(folder) / "sites"
        schema = write_sites(sites, graph, cut.partition, cut.roles)
        for average in AVERAGES:
            for poisoned in (0, POISONED):
                members = [Member(site) for site in site_folders(sites)]
                job = Job(config=config, sites=SITES, average=average)
                leader = Coordinator(job, schema, Poisoned(members, poisoned))
                outcome = leader.run()[0]["fed"].calibrated
                honest, others = range(POISONED, SITES), range(POISONED)
                test, covered, labels = sum(outcome.tallies[k] for k in honest)[0, :3]
                theirs, held = sum(outcome.tallies[k] for k in others)[0, :2]
                correct = sum(outcome.correct[k] for k in honest)
                print(
                    f"| {average} | {poisoned} | {correct / test:.3f} | {labels / test:.2f} "
                    f"| {covered / test:.3f} | {held / theirs:.3f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
