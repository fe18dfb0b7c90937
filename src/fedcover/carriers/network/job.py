"""What a federation is to do, and how it begins.

A job comes from Flower's ``--run-config``: the schema's settings, with dashes in their names.
Flower wants every key to stand in the app's ``pyproject.toml``; an empty value means: as the preset
has it. The sites are told their part of it.

A site shows that its data has the agreed schema without showing the data: it returns a hash of the
schema, its name and a number that the coordinator has drawn for this job, so that it cannot be one
heard elsewhere. It finds its own number without being told who the others are.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcover.algorithm.checks import MOST_COUNTED
from fedcover.carriers.network.messages import Reply
from fedcover.config import Config, NetworkSettings, recipe_of
from fedcover.config.schema import options, unknown
from fedcover.config.settings import (
    changes_of,
    check_robust,
    limits_shares,
    network_settings,
)
from fedcover.errors import DataError, UsageError
from fedcover.graphs.schema import Schema, read_schema

OWN = {
    "schema": "Path of the agreed schema.json on the coordinator's machine.",
    "out": "The run folder that the coordinator writes.",
    "preset": "default, plain or paper.",
}
DEFAULTS: dict[str, Any] = {"methods": "gen", "seeds": 1}
"""What a job is unless told: a simulation's default has methods that no network has."""
MAX_SHARE = 0.5  # unless told: in a network, somebody may lie about its number of nodes
HELLO, SITES = "data/hello", "data/sites"
"""The parts that a job begins with: who takes part, and with which number."""
COUNTED = ("nodes", "train", "valid", "calib", "test", "unlabelled")
"""What of its nodes a site tells at the beginning."""


@dataclass(frozen=True, kw_only=True)
class Job(NetworkSettings):
    """A run's settings, and those of a federation whose sites may fail."""

    config: Config = field(default_factory=lambda: Config(partition="given", **DEFAULTS))

    def __post_init__(self) -> None:
        super().__post_init__()
        config = self.config
        for method in config.methods:
            if not recipe_of(method).method.federated:
                raise UsageError(
                    f"methods has {method!r}, which only a simulation has: no site knows the "
                    "others' edges."
                )
        if config.partition != "given":
            raise UsageError(
                f"partition is {config.partition!r}; over a network every site has its own graph, "
                "which is the partition 'given'."
            )
        if config.client_shares is not None and len(config.client_shares) != self.sites:
            raise UsageError(
                f"client_shares has length {len(config.client_shares)}; it must hold one number "
                f"for each of the {self.sites} sites, in the order of their names."
            )
        check_robust(config.robust, self.sites, "sites")
        if (config.calibrate == "group") != (self.group is not None):
            raise UsageError("calibrate 'group' and group, the column that names it, go together.")

    def settled(self, schema: Schema) -> "Job":
        """With what the settings leave to the data: nobody sees them all, so the schema decides."""
        config = self.config
        unit, standard = config.unit_features, config.standardise
        unit = not standard and schema.binary if unit is None else unit
        standard = not unit and not schema.binary if standard is None else standard
        return replace(self, config=replace(config, unit_features=unit, standardise=standard))


@dataclass(frozen=True)
class Assignment:
    """What is to be done, and where the run folder goes."""

    job: Job
    schema: Schema
    out: Path

    @property
    def beside(self) -> Path:
        """What a coordinator that is started again needs; gone when the run folder stands."""
        return job_folder(self.out)


def job_folder(out: Path) -> Path:
    """Where a job keeps what it needs to go on, beside its run folder."""
    return out.parent / f"{out.name}.job"


def assignment_from(run_config: Mapping[str, Any]) -> Assignment:
    """The job that these settings describe; a wrong one is named."""
    for key in ("schema", "out"):
        if not run_config.get(key):
            raise UsageError(f"--run-config has no {key}.")
    schema = read_schema(Path(str(run_config["schema"])))
    return Assignment(job_from(run_config), schema, Path(str(run_config["out"])))


def job_from(run_config: Mapping[str, Any]) -> Job:
    """The same without its files."""
    known = {name.replace("_", "-"): (name, one) for name, one in network_settings().items()}
    given = dict(DEFAULTS)
    for key, value in run_config.items():
        if key not in known and key not in OWN:
            raise unknown(key, [*known, *OWN])
        if key in known and value != "":
            name, one = known[key]
            given[name] = one.read(value)
    preset = run_config.get("preset") or "default"
    settings = {name: one.default for name, one in options(Config).items()}
    settings |= changes_of(preset) | given
    network = {name: given.pop(name) for name in options(NetworkSettings) if name in given}
    limited = limits_shares(np.atleast_1d(settings["quantiles"]).tolist(), settings["calibrate"])
    sites = network.get("sites", NetworkSettings().sites)
    if limited and sites > 2 and settings["client_shares"] is None:
        # Of two sites one always has half; elsewhere not all thresholds would have a limit.
        given.setdefault("max_share", MAX_SHARE)
    return Job(config=Config.preset(preset, partition="given", **given), **network)


def terms_text(job: Job) -> str:
    """What the sites must know of a job."""
    columns = {"missing": job.missing, "group": job.group, "match": job.match}
    return json.dumps({"config": asdict(job.config), **columns}, default=str)


def terms_from_text(text: str) -> tuple[Config, dict[str, Any]]:
    """The settings of :func:`terms_text`, and how a site reads its folder."""
    told = json.loads(text)
    return Config(**told["config"]), {key: told[key] for key in ("missing", "group", "match")}


def proof(schema: Schema, nonce: NDArray[np.uint8], name: str) -> NDArray[np.uint8]:
    """32 bytes."""
    digest = hashlib.sha256(nonce.tobytes() + name.encode() + schema.fingerprint.encode())
    return np.frombuffer(digest.digest(), dtype=np.uint8)


def unfit(schema: Schema, nonce: NDArray[np.uint8], name: str, reply: Reply) -> str:
    """Why a site that said hello cannot take part."""
    content = reply.contents[0] if len(reply.contents) == 1 else {}
    if reply.problem or set(content) != {"proof", "counts"}:
        return reply.problem or "it does not say hello as it should."
    if not np.array_equal(content["proof"], proof(schema, nonce, name)):
        return "its schema is not the agreed one."
    counts = content["counts"]
    if counts.shape != (len(COUNTED),) or counts.dtype != np.int64:
        return "its numbers of nodes are not counts."
    if (counts < 0).any() or (counts > MOST_COUNTED).any():
        return "its numbers of nodes cannot be."
    if counts[0] != counts[1:].sum():
        return f"it has {counts[0]} nodes, but says what {counts[1:].sum()} are for."
    return ""


def roll(job: str, names: Sequence[str]) -> NDArray[np.uint8]:
    """The sites of a job in their order: 32 bytes each, which a site can tell for its own name."""
    digests = [hashlib.sha256(f"{job} {name}".encode()).digest() for name in names]
    return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(len(names), -1)


def number_in(rolled: NDArray[np.uint8], job: str, name: str) -> int:
    """A site's own number, from the roll."""
    found = np.flatnonzero((rolled == roll(job, [name])).all(axis=1))
    if len(found) != 1:
        raise DataError(f"{name} is not one of the sites of the job {job}.")
    return int(found[0])
