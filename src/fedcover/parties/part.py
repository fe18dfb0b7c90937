"""What a site does in one job, from its own data.

Everything that must survive the process is in the site's memory on disk: what the coordinator
concluded, the optimiser's state, and the last reply. An order that comes again (the coordinator was
killed before it got the reply) gets the same reply again; nothing is trained twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcover import conformal
from fedcover.conformal.protocol import Message, answer_each
from fedcover.errors import DataError, UsageError
from fedcover.experiment.config import Config
from fedcover.experiment.recipes import recipe_of
from fedcover.experiment.temperature import WAYS
from fedcover.federation import Federation, PartyGraph, Plan
from fedcover.federation.participant import Participant
from fedcover.federation.program import train_stack
from fedcover.graphs.schema import Schema, parse_schema
from fedcover.graphs.splits import Role
from fedcover.neighbors.augment import augment
from fedcover.neighbors.gen import Got, Received, others, received_by, unlinked
from fedcover.neighbors.links import choose_links
from fedcover.neighbors.prototypes import client_prototypes
from fedcover.parties import proof
from fedcover.parties.checkpoint import Checkpoint
from fedcover.parties.fedavg import stacked, unstacked
from fedcover.parties.job import Job, plan, settings_from_text
from fedcover.parties.messages import Order, text, words
from fedcover.parties.results import tally, write_sets
from fedcover.parties.site import Site, read_site

MIN_CLUSTER = 5  # what stands behind a prototype at least, whatever the coordinator asks for


class Part:
    """What a site does in one job."""

    def __init__(self, job: str, name: str, data: Path, work: Path, memory: Checkpoint) -> None:
        self.job = job
        self.preparing = 0.0  # seconds, of the order under way
        self._name, self._data, self._work, self._memory = name, data, work, memory
        self._training: tuple[str, Participant] | None = None
        self._outputs: tuple[str, NDArray[np.float32]] | None = None
        self._received: tuple[str, dict[int, Received]] | None = None
        self._verbs: dict[str, Callable[[Order], Message]] = {
            "prototypes": self._prototypes,
            "fit": self._fit,
            "loss": self._loss,
            "alone": self._alone,
            "temperature": self._temperature,
            "raps": self._raps,
            "quantile": self._quantile,
            "sets": self._sets,
        }

    def answer(self, order: Order) -> Message:
        """The reply's arrays."""
        if order.verb == "hello":  # it may be said again in the middle of a job
            return self._hello(order)
        if order.verb not in self._verbs:
            raise UsageError(f"{order.verb!r} is nothing that a site can do.")
        for name, content in order.conclusions.items():
            self._memory.write(f"told {name}", content)
        place = text("\n".join(map(str, order.place)))
        last = self._memory.read("last") or {}
        if np.array_equal(last.get("place", ()), place):
            return {k.removeprefix("reply."): v for k, v in last.items() if k.startswith("reply.")}
        content = self._verbs[order.verb](order)
        kept = {f"reply.{name}": array for name, array in content.items()}
        if self._training is not None:
            phase, participant = self._training
            kept |= {f"adam.{name}": array for name, array in participant.state().items()}
            kept["training"] = text(phase)
        self._memory.write("last", {"place": place, **kept})
        return content

    # What the site knows of the job.

    def _known(self, name: str) -> dict[str, NDArray[Any]]:
        found = self._memory.read(f"told {name}")
        if found is None:
            raise DataError(f"{name} is not known here; the coordinator must send it first.")
        return found

    @cached_property
    def _terms(self) -> Message:
        """What the coordinator said first: settings and schema."""
        found = self._memory.read("hello")
        if found is None:
            raise DataError("the coordinator must say hello first.")
        return found

    @cached_property
    def _config(self) -> Config:
        config = settings_from_text(words(self._terms["settings"]))
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
    def _job(self) -> Job:
        return Job(config=self._config)

    @cached_property
    def _number(self) -> int:
        return proof.number_in(self._known("sites")["roll"], self.job, self._name)

    @cached_property
    def _site(self) -> Site:
        return read_site(
            self._data, self._schema, self._config, self._config.first_seed, self._number
        )

    def _plan(self, method: str) -> Plan:
        return plan(self._config, self._schema, recipe_of(method))

    # What it answers.

    def _hello(self, order: Order) -> Message:
        terms = {name: order.query[name] for name in ("settings", "schema")}
        agreed = self._memory.read("hello")
        if agreed is None:
            self._memory.write("hello", terms)
        elif any(not np.array_equal(agreed[name], terms[name]) for name in terms):
            raise UsageError("a job's settings and schema cannot change on the way.")
        # How many nodes have which role does not depend on the number, which is not known yet.
        site = read_site(self._data, self._schema, self._config, self._config.first_seed, 0)
        return {
            "proof": proof.of(self._schema, order.query["nonce"], self._name),
            "counts": np.array(list(site.counts.values())),
        }

    def _prototypes(self, order: Order) -> Message:  # noqa: ARG002 (it needs no query)
        config, settings = self._config, self._config.gen
        vae = settings.vae
        if vae.binary is None:
            vae = replace(vae, binary=self._schema.binary)
        key = (config.first_seed, self._number)
        sent = client_prototypes(
            [self._site.client], [key], vae, settings.prototypes, config.privacy
        )
        return {str(m): rows for m, rows in sent[0].items()}

    def _fit(self, order: Order) -> Message:
        participant = self._ready(order)
        losses = participant.losses()
        return {**stacked(participant.fit(order.round)), "loss": losses}

    def _loss(self, order: Order) -> Message:
        return {"loss": self._ready(order).losses()}

    def _ready(self, order: Order) -> Participant:
        """Who trains in this phase, with the weights that came."""
        if self._training is None or self._training[0] != order.phase:
            began = time.perf_counter()
            method, _, step = order.phase.rpartition("/")
            training = self._config.gen.link_plan if step == "links" else self._plan(method)
            if step == "choice":
                training = replace(training, batch_size=None)
            participant = Participant(
                self._graphs(method, step), self._config.first_seed, self._number, training
            )
            last = self._memory.read("last") or {}
            if words(last.get("training", text(""))) == order.phase:
                state = {k.removeprefix("adam."): v for k, v in last.items() if k[:5] == "adam."}
                participant.restore(state)
            self._training = (order.phase, participant)
            self.preparing += time.perf_counter() - began
        participant = self._training[1]
        if order.query:
            participant.receive(unstacked(order.query))
        return participant

    def _graphs(self, method: str, step: str) -> list[PartyGraph]:
        """The graphs of one phase: one a model."""
        client = self._site.client
        if step == "links":
            return [unlinked(client, self._got(method))]
        if recipe_of(method).base != "gen":
            return [client]
        cells = self._known(f"{method}/cells")["cells"]
        if step == "train":
            cells = cells[self._known(f"{method}/cell")["cell"]]
        return [self._augmented(method, int(m), float(share)) for m, share in cells]

    def _got(self, method: str) -> Got:
        """The others' prototypes, by M."""
        sent, client = self._known(f"{method}/prototypes"), self._site.client
        got = {}
        for m in self._config.gen.prototypes:
            rows, owner = sent[f"rows.{m}"], sent[f"owner.{m}"]
            count = max(int(owner.max(initial=-1)), self._number) + 1
            got[m] = others(client, [rows[owner == k] for k in range(count)], self._number)
        return got

    def _augmented(self, method: str, m: int, share: float) -> PartyGraph:
        """The site's graph with generated neighbours for one M and one p."""
        settings, client = self._config.gen, self._site.client
        if self._received is None or self._received[0] != method:
            got = self._got(method)
            weights = unstacked(self._known(f"{method}/linker"))
            linker = Participant(
                [unlinked(client, got)],
                self._config.first_seed,
                self._number,
                settings.link_plan,
            )
            linker.receive(weights)
            outputs = linker.logits()[0][: client.own]
            received = received_by(got, outputs, weights[0], settings.link_latent)
            self._received = (method, received)
        one = self._received[1][m]
        links = choose_links(one.local, one.latent, share, settings.linking)
        return augment(client, one.features, links, settings.link_weight)

    def _alone(self, order: Order) -> Message:
        method = order.phase.rpartition("/")[0]
        training = replace(self._plan(method), patience=None)
        trained = train_stack([self._federation()], training)[0]
        return {"loss": trained.valid_loss * len(self._site.nodes(Role.VALID))}

    def _federation(self, client: PartyGraph | None = None) -> Federation:
        seed = self._config.first_seed
        return Federation([client or self._site.client], seed, first=self._number)

    # From logits to sets.

    def _logits(self, order: Order) -> NDArray[np.float32]:
        """The final model's, for the site's own nodes."""
        method = order.phase.rpartition("/")[0]
        if self._outputs is None or self._outputs[0] != method:
            training = self._plan(method)
            if training.average:
                final = Participant(
                    self._graphs(method, "train"),
                    self._config.first_seed,
                    self._number,
                    training,
                )
                final.receive(unstacked(self._known(f"{method}/model")))
                logits = final.logits()[0][: len(self._site.y)]
            else:
                rounds = int(self._known(f"{method}/best round")["round"]) + 1
                unvalidated = replace(self._site.client, valid=np.empty(0, dtype=np.int64))
                training = replace(training, rounds=rounds, patience=None)
                logits = train_stack([self._federation(unvalidated)], training)[0].logits[0]
            self._training, self._outputs = None, (method, logits)
        return self._outputs[1]

    def _temperature(self, order: Order) -> Message:
        valid = self._site.nodes(Role.VALID)
        client = WAYS[self._config.temperature][1]
        return client((self._logits(order)[valid], self._site.y[valid]), order.query)

    def _probs(self, order: Order) -> NDArray[np.floating]:
        method = order.phase.rpartition("/")[0]
        temperature = float(self._known(f"{method}/temperature")["temperature"])
        return conformal.softmax(self._logits(order), temperature)

    def _raps(self, order: Order) -> Message:
        valid, site = self._site.nodes(Role.VALID), self._site
        local = (self._probs(order)[valid], site.y[valid], site.u[valid])
        return conformal.raps_client(local, order.query)

    def _scores(self, order: Order) -> dict[str, NDArray[np.float32]]:
        """Nodes × labels, by score."""
        probs, raps = self._probs(order), None
        if "raps" in self._config.scores:
            method = order.phase.rpartition("/")[0]
            nu, k_reg = self._known(f"{method}/raps")["constants"]
            raps = conformal.RapsConstants(float(nu), int(k_reg))
        return {
            name: conformal.score(name, probs, self._site.u, raps) for name in self._config.scores
        }

    def _quantile(self, order: Order) -> Message:
        calib, y = self._site.nodes(Role.CALIB), self._site.y
        scores = self._scores(order)
        return answer_each(
            [conformal.RULES[rule].client for _, rule, _ in self._job.cases],
            [scores[score][calib, y[calib]] for score, _, _ in self._job.cases],
            order.query,
        )

    def _keep_thresholds(self, method: str, q_hat: NDArray[Any]) -> None:
        """A site makes a method's sets once: nobody can change them afterwards."""
        if q_hat.shape != (len(self._job.cases),) or np.isnan(q_hat).any():
            raise UsageError("the thresholds are not one number for each case.")
        made = self._memory.read(f"sets {method}")
        if made is not None and not np.array_equal(made["q_hat"], q_hat):
            raise UsageError(f"the sets of {method} are made already, with other thresholds.")
        self._memory.write(f"sets {method}", {"q_hat": q_hat})

    def _sets(self, order: Order) -> Message:
        method = order.phase.rpartition("/")[0]
        self._keep_thresholds(method, order.query["q_hat"])
        scores, site = self._scores(order), self._site
        test = site.nodes(Role.TEST)
        sets = []
        for (name, _, _), q_hat in zip(self._job.cases, order.query["q_hat"], strict=True):
            rows = scores[name][test]
            if not self._config.empty_sets:
                rows[np.arange(len(rows)), rows.argmin(axis=1)] = -np.inf
            sets.append(conformal.prediction_sets(rows, float(q_hat)))
        write_sets(self._work / "results" / self.job, self._name, method, site, self._job, sets)
        top = self._logits(order)[test].argmax(axis=1)
        return {
            "tally": np.stack([tally(one, site.y[test]) for one in sets]),
            "correct": np.array((top == site.y[test]).sum()),
        }
