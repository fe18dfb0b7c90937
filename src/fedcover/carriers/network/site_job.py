"""What a site does in one job: a party for every repetition, made from one folder.

Everything that must survive the process is in the site's memory on disk: what the coordinator
concluded, its models, the trainings under way, and the last reply. A question that comes again
(the coordinator was killed before it got the reply) gets the same answer again: nothing is trained
twice.
"""

import io
import json
import secrets
import time
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from logging import INFO, WARNING, getLogger
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import binom
from torch_geometric.data import Data

from fedcover.carriers.messages import FINISH
from fedcover.carriers.network import journal
from fedcover.carriers.network.checkpoint import Checkpoint, OnDisk
from fedcover.carriers.network.job import SITES, number_in, proof, terms_from_text
from fedcover.carriers.network.messages import Item, Order, Place
from fedcover.config import Config
from fedcover.conformal.protocol import Message, parts, text, words
from fedcover.errors import DataError, UsageError
from fedcover.files import write_whole
from fedcover.graphs.readers import read_folder
from fedcover.graphs.schema import Schema, parse_schema
from fedcover.models.gnn import arrays_of, weights_of
from fedcover.party import local_training, neighbours
from fedcover.party.calibration import own_coverage, thresholds_of
from fedcover.party.data import Links, listed_links, party_data
from fedcover.party.party import Party
from fedcover.plans import KEYS, MATCHING, SUMS, cases_of, extra_columns
from fedcover.tables import KEY, sets_frame

_log = getLogger(__name__)

MIN_CLUSTER = 5  # what stands behind a prototype at least, whatever the coordinator asks for
SOLVED = 2  # a sum of a model's outputs must be of so many more unknowns than it has numbers
FAR_OFF, UNLIKELY = 0.1, 1e-4  # a threshold that a site doubts: below the level, and by chance
MIN_FAR_ENDS = 3  # likewise behind a sum of +neighbours, unless the site itself lowers it


class SiteJob:
    """One site's side of one job."""

    def __init__(
        self,
        job: str,
        name: str,
        data: Path,
        work: Path,
        memory: Checkpoint,
        least_far_ends: int = MIN_FAR_ENDS,
    ) -> None:
        self.job = job
        self._least_far_ends = least_far_ends
        self.preparing = 0.0  # seconds, of the order under way
        self._name, self._data, self._work, self._memory = name, data, work, memory
        self._parties: dict[int, Party] = {}
        self._told: OnDisk[Message] = OnDisk(memory, "told")  # of all repetitions
        self._answers: dict[Place, Message] = {}  # of the last reply
        self._states: dict[tuple[int | None, str], Message] = {}  # of trainings, by seed and part
        self._closed = memory.read("closed") is not None
        self._named: dict[int, str] = {}  # other sites that this one has links to
        if (last := memory.read("last")) is not None:
            places, trainings = json.loads(words(last["head"]))
            kept = iter(parts(last, range(len(places) + len(trainings))).values())
            self._answers = {Place(*place): next(kept) for place in places}
            self._states = {tuple(training): next(kept) for training in trainings}

    def close(self, ledger: Path) -> Message:
        """The job is over, and nothing more is answered; the hash of the ledger so far."""
        self._closed = True
        return self._memory.first("closed", {journal.HEAD: journal.head(ledger)})

    def answer(self, order: Order) -> tuple[Message, ...]:
        """The arrays of the reply, one message a question."""
        if [place.verb for place in order.places] == ["hello"]:  # again amid a job, maybe
            return (self._hello(order.items[0].arrays),)
        if self._closed:
            raise UsageError("the job is over; this site answers no further orders for it.")
        try:
            for item in order.told:
                self._learn(item)
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
        party, method = self.party(seed), part.rpartition("/")[0]
        if verb == "sets":
            self._keep_thresholds(party, method, item.arrays["q_hat"])
            self._try_thresholds(party, method, item.arrays["q_hat"])
        reply = party.answer(part, verb, round_, item.arrays)
        if verb == "places":
            self._say_links(party)
        if verb == "sets":
            write_sets(self._work / "results" / self.job, self._graph, party, method)
        return reply

    def _remember(self, answers: dict[Place, Message]) -> None:
        """Write the reply and the states of trainings under way, as one file."""
        self._states |= {
            # Copies: what is trained on changes in place.
            (seed, part): {name: array.copy() for name, array in training.state().items()}
            for seed, party in self._parties.items()
            for part, training in party.training.items()
        }
        kept = {"head": text(json.dumps([list(answers), list(self._states)]))}
        for number, message in enumerate((*answers.values(), *self._states.values())):
            kept |= {f"{number}.{name}": array for name, array in message.items()}
        self._memory.write("last", kept)
        self._answers = answers

    def _learn(self, item: Item) -> None:
        """Keep what the coordinator has found out."""
        seed, part, verb, _ = item.place
        if verb == FINISH:
            local_training.finish(self.party(seed), part, item.arrays)
            self._states.pop((seed, part), None)
        else:
            told = self._told if seed is None else self.party(seed).told
            if part.startswith((MATCHING, SUMS)):
                raise UsageError(f"{part} is worked out at this site; nobody else can set it.")
            known = told.get(part) if part == KEYS else None
            if known is not None and not np.array_equal(known["keys"], item.arrays["keys"]):
                raise UsageError("the parties' keys cannot change during a job.")
            told[part] = item.arrays

    # What the site knows of the job.

    @cached_property
    def _terms(self) -> tuple[Config, dict[str, Any], Schema]:
        """What the coordinator said first: settings, how folders are read, and the schema."""
        found = self._memory.read("hello")
        if found is None:
            raise DataError("the coordinator must say hello first.")
        config, reading = terms_from_text(words(found["settings"]))
        least = config.gen.vae.min_cluster
        if least < MIN_CLUSTER:
            raise UsageError(
                f"min_cluster is {least}; this site sends no prototype with fewer than "
                f"{MIN_CLUSTER} nodes behind it."
            )
        if config.neighbour.least < self._least_far_ends:
            raise UsageError(
                f"neighbour_least is {config.neighbour.least}; this site adds to no sum of fewer "
                f"than {self._least_far_ends} far ends."
            )
        if config.matching == "open":
            raise UsageError(
                "matching is open, which is for simulations; this site sends nothing of its links "
                "without protocol and masks."
            )
        schema = parse_schema(words(found["schema"]), "the coordinator's schema")
        asked, features = config.neighbour, len(schema.feature_names)
        told = extra_columns(config, len(schema.labels)) * config.seeds
        if asked.epsilon is None and asked.least * features <= SOLVED * told:
            raise UsageError(
                f"neighbour_values is {asked.values}; with {features} features a sum of {told} "
                f"such numbers over {asked.least} nodes can be solved for these, so this site "
                "takes part with neighbour_epsilon only."
            )
        return config, reading, schema

    @cached_property
    def _graph(self) -> Data:
        _, reading, schema = self._terms
        return read_folder(self._data, schema, own=self._name, **reading)

    def party(self, seed: int | None) -> Party:
        """This site in one repetition."""
        config, _, schema = self._terms
        if seed is None or seed not in config.seed_range:
            raise UsageError("this seed is none of the job's.")
        if seed not in self._parties:
            began = time.perf_counter()
            told = self._told.get(SITES)
            if told is None:
                raise DataError("the sites are not known here; the coordinator must name them.")
            number = number_in(told["roll"], self.job, self._name)
            data = party_data(self._graph, config, seed, number, self._name)
            # Private noise, keys and masks follow from bytes that stay here: nobody can take the
            # noise or a mask off.
            drawn = {"secret": np.frombuffer(secrets.token_bytes(32), dtype=np.uint8)}
            kept = self._memory.first("secret", drawn)["secret"]
            secret = int.from_bytes(kept.tobytes(), "big")
            links = self._links(number, told["roll"])
            self._parties[seed] = Party(
                replace(data, secret=secret, links=links),
                config,
                len(schema.labels),
                OnDisk(self._memory, f"told {seed}"),
                OnDisk(self._memory, f"model {seed}", arrays_of, weights_of),
                lambda part: self._states.get((seed, part)),
            )
            self.preparing += time.perf_counter() - began
        return self._parties[seed]

    def _links(self, number: int, rolled: NDArray[np.uint8]) -> Links:
        """The links to sites that take part; those to others are named in the log, once."""

        def number_of(name: str) -> int | None:
            with suppress(DataError):
                number = number_in(rolled, self.job, name)
                self._named[number] = name
                return number
            if not self._parties:
                _log.warning("links to %s are not used: it takes no part in this job", name)
            return None

        return listed_links(self._graph, self._name, number, len(rolled), number_of)

    def _say_links(self, party: Party) -> None:
        """What came of the links, which the coordinator cannot tell: it knows none."""
        for other, (common, listed) in sorted(neighbours.in_common(party).items()):
            if listed:
                where = self._named.get(other, f"site {other + 1}")
                said = f"{common} of {listed} links or keys are in common with {where}"
                _log.log(INFO if common == listed else WARNING, said)

    def _hello(self, query: Message) -> Message:
        terms = {name: query[name] for name in ("settings", "schema")}
        agreed = self._memory.first("hello", terms)
        if any(not np.array_equal(agreed[name], terms[name]) for name in terms):
            raise UsageError("a job's settings and schema cannot change on the way.")
        # The counts depend neither on the seed nor on the number, which is not known yet.
        config, _, schema = self._terms
        data = party_data(self._graph, config, config.first_seed, 0, self._name)
        return {
            "proof": proof(schema, query["nonce"], self._name),
            "counts": np.array(list(data.counts.values())),
        }

    def _keep_thresholds(self, party: Party, method: str, q_hats: NDArray[Any]) -> None:
        """A site makes a method's sets once: nobody can change them afterwards."""
        shape = (len(cases_of(party.config)), thresholds_of(party))
        if q_hats.shape != shape or np.isnan(q_hats).any():
            raise UsageError("the thresholds are not one number for each case.")
        made = self._memory.first(f"sets {party.data.seed} {method}", {"q_hat": q_hats})
        if not np.array_equal(made["q_hat"], q_hats):
            raise UsageError(f"the sets of {method} are made already, with other thresholds.")

    def _try_thresholds(self, party: Party, method: str, q_hats: NDArray[Any]) -> None:
        """Say so if they are far off for the site's own calibration nodes, before a set is written.

        The level is promised on average over all sites' nodes, so one's own share may differ.
        """
        count = party.data.counts["calib"]
        covered = own_coverage(party, method, q_hats)
        for (score, rule, alpha), hits in zip(cases_of(party.config), covered, strict=True):
            share, chance = hits / max(count, 1), binom(count, 1 - alpha)
            low = share < 1 - alpha - FAR_OFF and chance.cdf(hits) < UNLIKELY
            if low or (hits == count and chance.pmf(hits) < UNLIKELY):
                level = f"{method}, {score}, {rule}: sets at level {1 - alpha:g}"
                own = f"{hits} of this site's own {count} calibration nodes"
                _log.warning("%s cover %s: the threshold does not suit this site.", level, own)


def write_sets(folder: Path, graph: Data, party: Party, method: str) -> None:
    """Write the sets of a method: one Parquet file for all seeds, to which this one is added."""
    data, asked = party.data, party.data.asked
    ids, labels, y = np.asarray(graph.node_ids)[asked], graph.label_names, data.y[asked]
    client = pl.repeat(data.name, len(asked), dtype=pl.String, eager=True)
    frames = []
    for case, one in zip(cases_of(party.config), party.sets[method], strict=True):
        key = dict(zip(KEY, (method, *case, data.seed), strict=True))
        frames.append(sets_frame(ids, client, y, labels, one, **key))
    file = folder / f"sets-{method}.parquet"
    if file.exists():
        frames.insert(0, pl.read_parquet(file).filter(pl.col("seed") != data.seed))
    buffer = io.BytesIO()
    pl.concat(frames).sort("seed", maintain_order=True).write_parquet(buffer)
    write_whole(file, buffer.getvalue())
