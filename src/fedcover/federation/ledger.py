"""What left each client and what reached it: kind, shape and bytes of every message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from fedcover.conformal.protocol import Direction, Listener, Message
from fedcover.models import Weights


@dataclass(frozen=True)
class Entry:
    """One array of a message, sent alike in ``rounds`` rounds from ``round`` on.

    "up" left the client, "down" reached it.
    """

    kind: str
    direction: Direction
    client: int
    round: int
    shape: tuple[int, ...]
    bytes: int
    rounds: int = 1


class Ledger:
    """The account of one repetition of one method."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def copy(self) -> Ledger:
        """An account of its own that goes on from here."""
        other = Ledger()
        other.entries = list(self.entries)
        return other

    def record(
        self,
        kind: str,
        direction: Direction,
        client: int,
        round_: int,
        shape: tuple[int, ...],
        bytes_: int,
        rounds: int = 1,
    ) -> None:
        """Write down one array that travelled, in one round or alike in several."""
        self.entries.append(Entry(kind, direction, client, round_, shape, bytes_, rounds))

    def record_weights(self, kind: str, weights: Weights, clients: int, rounds: int) -> None:
        """A model that leaves every client and comes back averaged in each round.

        The initial weights follow from the seed, which all know; they are not sent.
        """
        for client in range(clients):
            for tensor in weights.tensors():
                shape, size = tuple(tensor.shape), tensor.numel() * tensor.element_size()
                self.record(kind, "up", client, 0, shape, size, rounds)
                self.record(kind, "down", client, 0, shape, size, rounds)

    def record_training(
        self, weights: Weights, clients: int, rounds: int, average: bool, purpose: str = ""
    ) -> None:
        """FedAvg's messages: weights up and down each round, and each client's validation loss.

        A client's weight in the average, its number of training nodes, goes up once. Without
        averaging only the losses (sum and number) are sent: they choose the common best round.
        """
        if average:
            self.record_weights(f"weights{purpose}", weights, clients, rounds)
        for client in range(clients):
            if average:
                self.record(f"training nodes{purpose}", "up", client, 0, (1,), 8)
            self.record(f"validation loss{purpose}", "up", client, 0, (2,), 16, rounds)

    def record_statistics(self, clients: int, columns: int) -> None:
        """What standardising takes: count, sum and sum of squares up, mean and scale down."""
        for client in range(clients):
            self.record("feature statistics", "up", client, 0, (3, columns), 24 * columns)
            self.record("feature statistics", "down", client, 0, (2, columns), 8 * columns)

    def announce(self, kind: str, value: NDArray[Any], clients: int) -> None:
        """What the server has concluded goes down to every client, once."""
        for client in range(clients):
            self.record(kind, "down", client, 0, value.shape, value.nbytes)

    def listener(self) -> Listener:
        """For :func:`fedcover.conformal.converse`: its messages, numbered by round."""
        rounds: Counter[tuple[str, int, str]] = Counter()

        def listen(direction: Direction, client: int, kind: str, message: Message) -> None:
            round_ = rounds[direction, client, kind]
            rounds[direction, client, kind] += 1
            for array in message.values():
                self.record(kind, direction, client, round_, array.shape, array.nbytes)

        return listen

    def totals(self) -> dict[str, dict[str, int]]:
        """Bytes by kind and direction, summed over clients and rounds."""
        totals: dict[str, dict[str, int]] = {}
        for entry in self.entries:
            kind = totals.setdefault(entry.kind, {"up": 0, "down": 0})
            kind[entry.direction] += entry.bytes * entry.rounds
        return totals
