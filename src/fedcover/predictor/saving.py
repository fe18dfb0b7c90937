"""Writes a predictor: ``model.json`` (words and numbers), ``arrays.safetensors`` (arrays), and a
card to read. Nothing is pickled, so that a file from elsewhere can do nothing but be wrong."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save as pack

from fedcover.conformal import RULES
from fedcover.conformal.exchangeability import rejects
from fedcover.graphs.splits import NO_ROLE, Role, is_asked
from fedcover.models.gnn import WEIGHTS
from fedcover.predictor.inference import PLANNED
from fedcover.predictor.predictor import Predictor

FORMAT = 3
JSON, ARRAYS, CARD = "model.json", "arrays.safetensors", "MODEL_CARD.md"
FOLDER = "model"  # where a run folder keeps its predictors, one folder a method

Arrays = dict[str, NDArray[Any]]
_RUN = ("method", "seed", "labels", "features", "clients")
WORDS = (
    *_RUN, "given", "whole", "temperature", "empty_sets", "fixed_shares", "max_share",
)  # fmt: skip

PROMISE = """For {whom} that were in the graph when the predictor was calibrated: {band}. Not for
a node that was added later, or whose neighbourhood has changed: for these the sets are what the
model says, and a promise needs `fedcover predict --recalibrate`. `fedcover predict` says for every
node which it is."""

UNLABELLED = "nodes without a label, if labels are missing at random within each client,"

RULED = {
    "exact": """at least 1 − α with the rule `exact`, on average over nodes that are drawn from the
    clients {whom}{firm}{most}""",
    "theorem1": """at least 1 − α with the rule `theorem1`, on average over nodes that are drawn
    from the clients in proportion to their calibration nodes{most}""",
}
MOST = ", and at most 1 − α + {slack} where no two scores are equal"
SLACKS = {"exact": "2 max pₖ/nₖ, for a share pₖ and nₖ calibration nodes,", "theorem1": "K/(N+K)"}
_OF_EACH = """at least 1 − α for every {kind} that has enough calibration nodes, for a node drawn
from the clients in proportion to theirs of that {kind}"""
BANDS = {
    "client": "at least 1 − α at every client with 1/α − 1 calibration nodes or more",
    **{kind: _OF_EACH.format(kind=kind) for kind in ("class", "group")},
}
MEASURED = """The share of test nodes whose set contains the true label: the mean over the run's
calibration/test re-splits, and on the split that this predictor was calibrated with."""
UNLIKE = " Test nodes are NOT like calibration nodes: the promise below does not hold for them."
NOTHING = "Nothing: {rules} is a rule without a guarantee."

FILES = """Weights, the calibration nodes' scores with their client but without their nodes, and for
every node of the graph its client, its role, and salted hashes of its name and of its features and
neighbours. Keep it as you keep the data: whoever has this folder can test a guess of a node's name
or features, and whoever also has the features and edges can compute the scores again and so read
the calibration nodes' labels off."""

GENERATED = """The neighbours that stand for other clients' nodes, generated ones or means of their
features, are in it as well."""


def save_predictor(predictor: Predictor, folder: Path) -> Path:
    """Write the three files; the folder is made."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = pack(_arrays(predictor))
    content = {
        "format": FORMAT,
        **{name: getattr(predictor, name) for name in WORDS},
        "columns": predictor.models[0].columns,
        "raps": predictor.raps._asdict() if predictor.raps else None,
        "models": [
            {
                "plan": {name: getattr(model.plan, name) for name in PLANNED},
                "temperature": model.temperature,
                "shared": model.shared,
            }
            for model in predictor.models
        ],
        "generated": [one is not None for one in predictor.generated],
        "quantiles": predictor.quantiles,
        "terms": vars(predictor.terms),
        "diffusion": predictor.diffusion,
        "scores": {
            name: {"kind": one.kind, "groups": one.groups.names if one.groups else None}
            for name, one in predictor.calibrations.items()
        },
        "salt": predictor.known.salt.hex(),
        "schema": predictor.schema.to_json() if predictor.schema else None,
        "fingerprint": predictor.schema.fingerprint if predictor.schema else None,
        "scaling": predictor.scaling.to_dict() if predictor.scaling else None,
        "gaps": predictor.gaps,
        "group": predictor.group,
        "match": predictor.match,
        "card": predictor.card,
    }
    content["sha256"] = {ARRAYS: sha256(arrays), JSON: checksum(content)}
    (folder / ARRAYS).write_bytes(arrays)
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    (folder / JSON).write_text(text, encoding="utf-8")
    (folder / CARD).write_text(card_text(predictor), encoding="utf-8")
    return folder


def checksum(content: Mapping[str, Any]) -> str:
    """Of everything in the JSON but the checksums, however it is laid out."""
    rest = {key: value for key, value in content.items() if key != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode())


def sha256(content: bytes) -> str:
    """In hex digits."""
    return hashlib.sha256(content).hexdigest()


def _arrays(predictor: Predictor) -> Arrays:
    arrays: Arrays = {f"prior.{k}": model.prior for k, model in enumerate(predictor.models)}
    if predictor.mixture is not None:
        arrays["mixture"] = predictor.mixture
    for k, model in enumerate(predictor.models):
        for c, weights in enumerate(model.weights[:1] if model.shared else model.weights):
            for name in WEIGHTS:
                arrays[f"weights.{k}.{c}.{name}"] = getattr(weights, name).numpy()
    for c, one in enumerate(predictor.generated):
        if one is not None:
            x = one.features
            parts = (one.source, one.target, one.weight, x.data, x.indices, x.indptr)
            arrays |= {f"generated.{c}.{k}": part for k, part in enumerate(parts)}
    for name, calibration in predictor.calibrations.items():
        arrays[f"scores.{name}"] = calibration.scores
        arrays[f"scores.{name}.client"] = calibration.client
        if calibration.groups is not None:
            arrays[f"scores.{name}.member"] = calibration.groups.member
    known = {name: array for name, array in vars(predictor.known).items() if name != "salt"}
    arrays |= {f"known.{name}": array for name, array in known.items() if array is not None}
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def card_text(predictor: Predictor) -> str:
    """Markdown."""
    card, clients, labels = predictor.card, predictor.clients, predictor.labels
    privacy, spent = "Without differential privacy.", card.get("privacy")
    if spent:
        privacy = (
            f"Prototypes were sent with differential privacy, ε = {spent['epsilon']:.3g} at "
            f"δ = {spent['delta']:.1g}; weights and counts were not."
        )
    rows = [
        f"| {row['score']} | {row['quantile']} | {row['alpha']:g} | {_number(row['coverage'], 3)} "
        f"| {_number(row.get('coverage_split'), 3)} | {_number(row['set_size'], 2)} |"
        for row in card.get("coverage", ())
    ]
    measured = MEASURED
    if any(row["coverage"] is None for row in card.get("coverage", ())):
        measured = "None: the run had no test nodes. Sizes are those of nodes without a label."
    table = [
        "| score | rule | α | coverage | on its own split | labels in a set |",
        "|---|---|--:|--:|--:|--:|",
        *rows,
    ]
    tests = [
        _wrapped(
            f"Calibration against test scores inside clients, {one['score']}: p = "
            f"{one['p_value']:.3g}; client {one['party']} differs most, p = "
            f"{one['party_p_value']:.3g}."
            f"{UNLIKE if rejects(one['p_value'], one['party_p_value']) else ''}"
        )
        for one in card.get("exchangeability", ())
    ]
    held = f"{FILES} {GENERATED}" if any(predictor.generated) else FILES
    sections = {
        f"# Model card: {predictor.method} on {card.get('graph')}": _wrapped(
            f"Prediction sets over {len(labels)} labels ({', '.join(labels)}), made by fedcover "
            f"{card.get('fedcover')} with the method `{predictor.method}`, seed {predictor.seed}."
        ),
        "## Data": _wrapped(
            f"{card.get('nodes')} nodes with {predictor.features} features at {len(clients)} "
            f"clients: {', '.join(clients)}. Calibrated with {card.get('n_calibration')} nodes. "
            f"{privacy}"
        ),
        "## Coverage measured": "\n\n".join([_wrapped(measured), "\n".join(table), *tests]),
        "## For whom the level is promised": _wrapped(_promise(predictor)),
        "## What is in the files": _wrapped(held),
    }
    if card.get("notes"):
        sections["## Notes"] = "\n".join(f"- {note}" for note in card["notes"])
    return "\n".join(f"{title}\n\n{body}\n" for title, body in sections.items())


def _promise(predictor: Predictor) -> str:
    if not any(RULES[rule].guarantee for rule in predictor.quantiles):
        return NOTHING.format(rules=" or ".join(predictor.quantiles))
    (kind,) = {one.kind for one in predictor.calibrations.values()}
    owner = predictor.whole and len(predictor.clients) > 1
    shares, sure = predictor.terms.shares or (), predictor.terms.confidence
    named = list(zip(predictor.clients, shares, strict=True)) if shares and not owner else []
    spread = ", ".join(f"{name}: {share / sum(shares):.3g}" for name, share in named)
    whom = f"by these shares: {spread}" if spread else "in proportion to their calibration nodes"
    firm = f", in at least {sure:.0%} of all draws of the calibration nodes" if sure else ""
    ruled = []
    for rule in filter(RULED.__contains__, predictor.quantiles):
        # A label that is always added covers more, and so does confidence.
        bounded = predictor.empty_sets and not (sure and rule == "exact")
        most = MOST.format(slack=SLACKS[rule]) if bounded else ""
        ruled.append(RULED[rule].format(whom=whom, firm=firm, most=most))
    tested = bool((predictor.known.role == Role.TEST).any())
    nodes = ["test nodes"] * tested + [UNLABELLED] * bool((predictor.known.role == NO_ROLE).any())
    said = PROMISE.format(whom=" and for ".join(nodes), band=BANDS.get(kind, "; ".join(ruled)))
    asked = set(predictor.known.client[is_asked(predictor.known.role)].tolist())
    out = [name for k, (name, share) in enumerate(named) if k in asked and not share]
    return f"{said} Left out, and promised nothing: {', '.join(out)}." if out else said


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _wrapped(text: str) -> str:
    return fill(" ".join(text.split()), 100)
