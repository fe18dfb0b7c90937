"""Write a hospital-like graph: patients of three hospitals, joined where their stays met.

It is made up from end to end. No number in it was taken from a hospital or a registry, and nothing
about medicine can be learnt from it; it has the *shape* of such data, so that the whole path can be
tried: parties of unequal size, different case mixes, records that overlap, and contacts across
hospitals that no single one of them can see.

How it is made, all from one seed:

1. Every patient has a home hospital (``riverside`` half of them, ``hillcrest`` 30 %, ``lakeside``
   20 %) and a diagnosis, whose frequencies depend on the hospital (``CASE_MIX``).
2. Ten measurements follow from the diagnosis with much noise: eight that are roughly standard
   normal, and two yes/no findings. They are on one scale already.
3. Every patient has one to three stays. A stay is at the home hospital, or one time in eight at
   another; on the ward of the diagnosis, or one time in three on some other ward; in one of many
   weeks.
4. Two patients who were on the same ward of the same hospital in the same week *met*: each stay is
   joined to up to three others of its ward and week, drawn at random. Those are the edges. Where
   the home hospitals differ, the edge crosses, and with ``--partition given`` it is cut.

    python examples/hospitals/make.py hospitals-data
    python examples/hospitals/make.py hospitals-data --patients 600 --seed 1
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl

HOSPITALS = ("riverside", "hillcrest", "lakeside")
SHARES = (0.5, 0.3, 0.2)  # of the patients
DIAGNOSES = ("cardiac", "infection", "injury", "respiratory")
CASE_MIX = np.array(  # of the diagnoses, by hospital
    [
        [0.20, 0.30, 0.30, 0.20],
        [0.55, 0.15, 0.10, 0.20],
        [0.05, 0.25, 0.20, 0.50],
    ]
)
MEASUREMENTS = 8
AWAY, WRONG_WARD = 1 / 8, 1 / 3
CONTACTS = 3  # that one stay brings at most
BEDS = 8  # patients on a ward in a week, on average


def hospitals(patients: int = 3000, seed: int = 0) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The tables ``nodes`` (id, label, client and features) and ``edges`` (source, target)."""
    rng = np.random.default_rng([seed, 0x405])
    home = rng.choice(len(HOSPITALS), patients, p=SHARES)
    diagnosis = _draw(CASE_MIX[home], rng)
    nodes = pl.DataFrame(
        {
            "id": [f"patient-{number:06}" for number in range(patients)],
            "label": np.array(DIAGNOSES)[diagnosis],
            "client": np.array(HOSPITALS)[home],
            **_measured(diagnosis, rng),
        }
    )
    met = _contacts(home, diagnosis, rng)
    ids = nodes["id"]
    return nodes, pl.DataFrame({"source": ids.gather(met[0]), "target": ids.gather(met[1])})


def write(folder: Path, patients: int = 3000, seed: int = 0) -> None:
    """Write the two tables as CSV, the way ``fedcover`` reads an own graph."""
    nodes, edges = hospitals(patients, seed)
    folder.mkdir(parents=True, exist_ok=True)
    nodes.write_csv(folder / "nodes.csv")
    edges.write_csv(folder / "edges.csv")


def _draw(shares: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One choice a row, with the row's probabilities."""
    return (rng.random((len(shares), 1)) > np.cumsum(shares, axis=1)[:, :-1]).sum(axis=1)


def _measured(diagnosis: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Measurements that lean towards the diagnosis, and findings that are likelier with it."""
    n = len(diagnosis)
    lean = rng.normal(scale=0.5, size=(len(DIAGNOSES), MEASUREMENTS))
    values = lean[diagnosis] + rng.normal(size=(n, MEASUREMENTS))
    likely = rng.uniform(0.1, 0.6, size=(len(DIAGNOSES), 2))
    found = (rng.random((n, 2)) < likely[diagnosis]).astype(int)
    columns = {f"measure{j}": values[:, j].round(3) for j in range(MEASUREMENTS)}
    return columns | {"fever": found[:, 0], "pain": found[:, 1]}


def _contacts(home: np.ndarray, diagnosis: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Pairs of patients (2, m) whose stays met; a patient may meet the same one twice."""
    stays = rng.integers(1, 4, len(home))
    patient = np.repeat(np.arange(len(home)), stays)
    n = len(patient)
    away = (home[patient] + rng.integers(1, len(HOSPITALS), n)) % len(HOSPITALS)
    where = np.where(rng.random(n) < AWAY, away, home[patient])
    other_ward = rng.integers(0, len(DIAGNOSES), n)
    ward = np.where(rng.random(n) < WRONG_WARD, other_ward, diagnosis[patient])
    weeks = max(n // (BEDS * len(HOSPITALS) * len(DIAGNOSES)), 1)
    place = (where * len(DIAGNOSES) + ward) * weeks + rng.integers(0, weeks, n)

    order = np.argsort(place, kind="stable")
    sizes = np.bincount(place)
    first = np.cumsum(sizes) - sizes
    pairs = []
    for _ in range(CONTACTS):
        mate = order[first[place] + (rng.random(n) * sizes[place]).astype(np.int64)]
        pairs.append(np.stack([patient, patient[mate]]))
    met = np.concatenate(pairs, axis=1)
    return met[:, met[0] != met[1]]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--patients", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.patients < 100:
        parser.error(f"--patients is {options.patients}; it must be 100 or more.")
    write(options.folder, options.patients, options.seed)
    print(f"{options.folder}: nodes.csv and edges.csv of {options.patients} made-up patients")
