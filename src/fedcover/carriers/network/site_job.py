"""What a site does in one job: a party for every repetition, made from one folder.

Everything that must survive the process is in the site's memory on disk: what the coordinator
concluded, its models, the trainings under way, and the last reply. A question that comes again
(the coordinator was killed before it got the reply) gets the same answer again: nothing is trained
twice.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover.algorithm.calibrate import cases_of
from fedcover.carriers.network import proof
from fedcover.carriers.network.checkpoint import Arrays, Checkpoint
from fedcover.carriers.network.job import terms_from_text
from fedcover.carriers.network.messages import SITES, Conclusion, Item, Order, Place, text, words
from fedcover.carriers.network.set_files import write_sets
from fedcover.config import Config
from fedcover.conformal.protocol import Message
from fedcover.errors import DataError, UsageError
from fedcover.graphs.readers import read_folder
from fedcover.graphs.schema import Schema, parse_schema
from fedcover.models import Weights
from fedcover.party import local_training
from fedcover.party.calibration import thresholds_of
from fedcover.party.data import party_data
from fedcover.party.party import Party
from fedcover.training.weights import arrays_of, weights_of

MIN_CLUSTER = 5  # what stands behind a prototype at least, whatever the coordinator asks for

Training = tuple[int, str]
"""A seed, and the part of a model."""


class SiteJob:
    """One site's side of one job."""

    def __init__(self, job: str, name: str, data: Path, work: Path, memory: Checkpoint) -> None:
        self.job = job
        self.preparing = 0.0  # seconds, of the order under way
        self._name, self._data, self._work, self._memory = name, data, work, memory
        self._parties: dict[int, Party] = {}
        self._answers, self._states = _read_last(memory.read("last"))

    def answer(self, order: Order) -> tuple[Message, ...]:
        """The arrays of the reply, one message a question."""
        if [place.verb for place in order.places] == ["hello"]:
            return (self._hello(order.items[0].query),)  # it may be said again amid a job
        try:
            for conclusion in order.conclusions:
                self._learn(conclusion)
            answers = {item.place: self._answer_once(item) for item in order.items}
        except BaseException:
            for party in self._parties.values():  # they are half an order ahead of the memory
                party.training.clear()
            raise
        self._remember(answers)
        return tuple(answers[place] for place in order.places)

    def _answer_once(self, item: Item) -> Message:
        if item.place in self._answers:
            return self._answers[item.place]
        seed, part, verb, round_ = item.place
        party = self.party(seed)
        if verb == "sets":
            method = part.rpartition("/")[0]
            self._keep_thresholds(party, method, item.query["q_hat"])
            reply = party.answer(part, verb, round_, item.query)
            folder = self._work / "results" / self.job
            write_sets(folder, self._graph, party, method)
            return reply
        return party.answer(part, verb, round_, item.query)

    def _remember(self, answers: dict[Place, Message]) -> None:
        """Write the reply and the trainings under way, as one file."""
        self._states |= {
            (seed, part): training.state()
            for seed, party in self._parties.items()
            for part, training in party.training.items()
        }
        head = [[list(place) for place in answers], [list(key) for key in self._states]]
        kept: Arrays = {"head": text(json.dumps(head))}
        for kind, several in (("reply", answers.values()), ("state", self._states.values())):
            for number, message in enumerate(several):
                kept |= {f"{kind}.{number}.{name}": array for name, array in message.items()}
        self._memory.write("last", kept)
        self._answers = answers

    def _learn(self, conclusion: Conclusion) -> None:
        seed, part = conclusion.seed, conclusion.part
        if not conclusion.finish:
            told = self._told if seed is None else self.party(seed).told
            told[part] = conclusion.arrays
            return
        local_training.finish(self.party(seed), part, conclusion.arrays)
        self._states.pop((self.party(seed).data.seed, part), None)

    # What the site knows of the job.

    @cached_property
    def _told(self) -> _OnDisk[Message]:
        return _OnDisk(self._memory, "told", dict, dict)

    @cached_property
    def _terms(self) -> Message:
        """What the coordinator said first: settings and schema."""
        found = self._memory.read("hello")
        if found is None:
            raise DataError("the coordinator must say hello first.")
        return found

    @cached_property
    def _reading(self) -> dict[str, Any]:
        return terms_from_text(words(self._terms["settings"]))[1]

    @cached_property
    def _config(self) -> Config:
        config = terms_from_text(words(self._terms["settings"]))[0]
        least = config.gen.vae.min_cluster
        if least < MIN_CLUSTER:
            raise UsageError(
                f"min_cluster is {least}; this site sends no prototype with fewer than "
                f"{MIN_CLUSTER} nodes behind it."
            )
        return config

    @cached_property
    def _schema(self) -> Schema:
        return parse_schema(words(self._terms["schema"]), "the coordinator's schema")

    @cached_property
    def _graph(self) -> Data:
        return read_folder(self._data, self._schema, **self._reading)

    @cached_property
    def _secret(self) -> int:
        """What private noise is drawn from; it stays here, so nobody can take the noise off."""
        found = self._memory.read("secret")
        if found is None:
            found = {"secret": np.array(secrets.randbits(62))}
            self._memory.write("secret", found)
        return int(found["secret"])

    def party(self, seed: int | None) -> Party:
        """This site in one repetition."""
        config = self._config
        if seed is None or seed not in config.seed_range:
            raise UsageError("this seed is none of the job's.")
        if seed not in self._parties:
            began = time.perf_counter()
            told = self._told.get(SITES)
            if told is None:
                raise DataError("the sites are not known here; the coordinator must name them.")
            number = proof.number_in(told["roll"], self.job, self._name)
            data = party_data(self._graph, config, seed, number, self._name)
            data = replace(data, secret=self._secret)
            self._parties[seed] = Party(
                data,
                config,
                len(self._schema.labels),
                _OnDisk(self._memory, f"told {seed}", dict, dict),
                _OnDisk(self._memory, f"model {seed}", arrays_of, _weights),
                lambda part: self._states.get((seed, part)),
            )
            self.preparing += time.perf_counter() - began
        return self._parties[seed]

    def _hello(self, query: Message) -> Message:
        terms = {name: query[name] for name in ("settings", "schema")}
        agreed = self._memory.read("hello")
        if agreed is None:
            self._memory.write("hello", terms)
        elif any(not np.array_equal(agreed[name], terms[name]) for name in terms):
            raise UsageError("a job's settings and schema cannot change on the way.")
        # How many nodes have which role depends neither on the seed nor on the number, which is
        # not known yet.
        config = self._config
        data = party_data(self._graph, config, config.first_seed, 0, self._name)
        return {
            "proof": proof.of(self._schema, query["nonce"], self._name),
            "counts": np.array(list(data.counts.values())),
        }

    def _keep_thresholds(self, party: Party, method: str, q_hats: NDArray[Any]) -> None:
        """A site makes a method's sets once: nobody can change them afterwards."""
        shape = (len(cases_of(party.config)), thresholds_of(party))
        if q_hats.shape != shape or np.isnan(q_hats).any():
            raise UsageError("the thresholds are not one number for each case.")
        name = f"sets {party.data.seed} {method}"
        made = self._memory.read(name)
        if made is not None and not np.array_equal(made["q_hat"], q_hats):
            raise UsageError(f"the sets of {method} are made already, with other thresholds.")
        self._memory.write(name, {"q_hat": q_hats})


Held = TypeVar("Held")


class _OnDisk(MutableMapping[str, Held], Generic[Held]):
    """What is known of every part, in memory and on disk."""

    def __init__(
        self,
        memory: Checkpoint,
        prefix: str,
        packed: Callable[[Held], Arrays],
        unpacked: Callable[[Message], Held],
    ) -> None:
        self._memory, self._prefix = memory, prefix
        self._packed, self._unpacked = packed, unpacked
        self._held: dict[str, Held] = {}

    def __getitem__(self, part: str) -> Held:
        if part not in self._held:
            found = self._memory.read(f"{self._prefix} {part}")
            if found is None:
                raise KeyError(part)
            self._held[part] = self._unpacked(found)
        return self._held[part]

    def __setitem__(self, part: str, value: Held) -> None:
        self._memory.write(f"{self._prefix} {part}", self._packed(value))
        self._held[part] = value

    def __delitem__(self, part: str) -> None:
        raise NotImplementedError("a site forgets nothing while a job is under way")

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


def _weights(arrays: Message) -> Weights:
    found = weights_of(arrays)
    assert found is not None
    return found


def _read_last(last: Message | None) -> tuple[dict[Place, Message], dict[Training, Message]]:
    """The answers of the last reply, and the states of the trainings that were under way."""
    if last is None:
        return {}, {}
    places, trainings = json.loads(words(last["head"]))

    def of(kind: str, number: int) -> Message:
        prefix = f"{kind}.{number}."
        return {k.removeprefix(prefix): v for k, v in last.items() if k.startswith(prefix)}

    return (
        {Place(*place): of("reply", number) for number, place in enumerate(places)},
        {(seed, part): of("state", number) for number, (seed, part) in enumerate(trainings)},
    )
