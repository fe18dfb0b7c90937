"""The model card: what whoever gets a predictor must know before using it."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

from fedcover.conformal import RULES

if TYPE_CHECKING:
    from fedcover.predictor.predictor import Predictor

PROMISE = """For test nodes that were in the graph when the predictor was calibrated: {band}. Not
for a node that was added later, or whose neighbourhood has changed: for these the sets are what the
model says, and a promise needs new calibration nodes. `fedcover predict` says for every node which
it is."""

RULED = {
    "exact": """at least 1 − α with the rule `exact`, for a node drawn from the clients in
    proportion to their calibration nodes{most}""",
    "mixture": """at least 1 − α with the rule `mixture`, for a node drawn from the clients by the
    shares {shares}""",
}
MOST = ", and at most 1 − α + K/(N+K) where no two scores are equal"
BANDS = {
    "client": "at least 1 − α at every client with 1/α − 1 calibration nodes or more",
    "class": """at least 1 − α for every class that has enough calibration nodes, for a node drawn
    from the clients in proportion to theirs of that class""",
    "group": """at least 1 − α for every group that has enough calibration nodes, for a node drawn
    from the clients in proportion to theirs of that group""",
}
NOTHING = "Nothing: {rules} is a rule without a guarantee."

FILES = """Weights, the calibration nodes' scores with their client but without their nodes, and for
every node of the graph its client, its role, and salted hashes of its name and of its features and
neighbours. Keep it as you keep the data: whoever has this folder can test a guess of a node's name
or features, and whoever also has the features and edges can compute the scores again and so read
the calibration nodes' labels off."""

GENERATED = "The generated neighbours, made from means of clients' nodes, are in it as well."


def card_text(predictor: Predictor) -> str:
    """Markdown."""
    card, clients = predictor.card, predictor.clients
    labels = predictor.labels
    made = (
        f"Prediction sets over {len(labels)} labels ({', '.join(labels)}), made by fedcover "
        f"{card.get('fedcover')} with the method `{predictor.method}`, seed {predictor.seed}."
    )
    data = (
        f"{card.get('nodes')} nodes with {predictor.features} features at {len(clients)} clients: "
        f"{', '.join(clients)}. Calibrated with {card.get('n_calibration')} nodes. "
        f"{_privacy(predictor)}"
    )
    rows = [
        f"| {row['score']} | {row['quantile']} | {row['alpha']:g} | {row['coverage']:.3f} | "
        f"{row['set_size']:.2f} |"
        for row in card.get("coverage", ())
    ]
    table = ["| score | rule | α | coverage | labels in a set |", "|---|---|--:|--:|--:|", *rows]
    held = f"{FILES} {GENERATED}" if any(predictor.generated) else FILES
    sections = {
        f"# Model card: {predictor.method} on {card.get('graph')}": _wrapped(made),
        "## Data": _wrapped(data),
        "## Coverage measured": "Mean over the run's calibration/test re-splits.\n\n"
        + "\n".join(table),
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
    shares = ", ".join(f"{share:.3g}" for share in predictor.shares or ())
    most = MOST if predictor.empty_sets else ""  # a label that is always added covers more
    ruled = [
        RULED[rule].format(shares=shares, most=most)
        for rule in predictor.quantiles
        if rule in RULED
    ]
    return PROMISE.format(band=BANDS.get(kind, "; ".join(ruled)))


def _privacy(predictor: Predictor) -> str:
    spent = predictor.card.get("privacy")
    if not spent:
        return "Without differential privacy."
    return (
        f"Prototypes were sent with differential privacy, ε = {spent['epsilon']:.3g} at "
        f"δ = {spent['delta']:.1g}; weights and counts were not."
    )


def _wrapped(text: str) -> str:
    return fill(" ".join(text.split()), 100)
