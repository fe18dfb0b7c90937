"""Write a bank-like graph: accounts of four banks, joined where money went from one to another.

It is made up from end to end. No number in it was taken from a bank, a customer or a case, and
nothing about crime can be learnt from it; it has the *shape* of such data, so that the whole path
can be tried: every bank knows its own accounts, a transfer between two banks is in the books of
both, and gangs take care that no single bank sees much of them.

The accounts are those that an alert has picked out, so that two in five are suspicious. Among all
accounts of a bank these would be few in a thousand at most. Four labels:

* ``ordinary``: looked into, nothing found.
* ``mule``: a private person's account that passes stolen money on.
* ``collector``: gathers what several mules bring.
* ``front``: of a business whose trade is partly invented, to explain the money.

How it is made, all from one seed:

1. **Accounts.** The banks differ in size, in their labels (``LABEL_MIX``) and in their customers
   (``CUSTOMERS``): ``alder`` is large, ``birch`` has people who use cash, ``cedar`` businesses, and
   ``elm`` is an app with young accounts.
2. **Looks.** What an account looks like follows from its label, but not surely (``LOOKS``): a
   student's account looks like a mule's, a flea market's like a front's, and a careful mule's like
   anybody's. All features depend on the looks and the bank, not on the label. So an account's own
   features cannot tell everything, however good the model is.
3. **Everyday transfers.** Accounts belong to circles of about fifty, most of them at one bank, and
   pay others in them, sometimes strangers. A few accounts are paid by very many (shops, employers).
   Suspicious accounts are used for less than others.
4. **Rings.** Every suspicious account belongs to a ring of about twenty. Stolen money comes from
   victims, ordinary accounts anywhere. A ring works in one of three ways (``RINGS``), and nine in
   ten of its transfers go to another bank where they can:

   * *fan-in*: mules pay collectors, collectors pay fronts;
   * *chain*: mules pay mules, so that the trail gets long; collectors are at its start, fronts at
     its end;
   * *invoices*: fronts pay each other for goods that do not exist, and wages to mules that work for
     nobody; mules pay collectors.

5. **Labels.** A share of each bank's accounts has not been looked into yet (``OPEN``). These are
   drawn at random within the bank, which the promise for them needs. Cases in life are not.
6. **Links.** A transfer between two banks is in the ``links`` of both. Three in a hundred were
   booked late and are in one bank's alone.

Numbers with long tails (turnover, payments, age) are logarithms to base 10, shares lie between 0
and 1. How many payments an account has is not counted from the transfers here, which only say who
has paid whom.

    python examples/banks/make.py banks
    python examples/banks/make.py banks --accounts 1200 --seed 1
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

BANKS = ("alder", "birch", "cedar", "elm")
SHARES = (0.4, 0.25, 0.2, 0.15)  # of the accounts
LABELS = ("ordinary", "mule", "collector", "front")
LABEL_MIX = np.array(  # of the labels, by bank
    [
        [0.62, 0.20, 0.09, 0.09],
        [0.66, 0.18, 0.08, 0.08],
        [0.54, 0.12, 0.14, 0.20],
        [0.48, 0.36, 0.10, 0.06],
    ]
)
OPEN = (0.10, 0.15, 0.20, 0.30)  # share of accounts without a label, by bank

# What an account looks like: as most do; money passes through; money gathers; a trade in cash.
LOOKS = np.array(  # by label
    [
        [0.76, 0.08, 0.08, 0.08],
        [0.22, 0.70, 0.06, 0.02],
        [0.12, 0.08, 0.72, 0.08],
        [0.08, 0.02, 0.15, 0.75],
    ]
)
BUSINESS = (0.12, 0.05, 0.40, 0.90)  # by looks
FEATURES = {  # mean by looks, and standard deviation; shares as logits
    "log_age": ((1.9, 1.2, 1.5, 1.7), 0.45),  # months since it was opened
    "log_turnover": ((3.4, 3.7, 4.1, 4.4), 0.40),  # euros a month
    "log_paid_in": ((0.7, 0.9, 1.6, 1.5), 0.35),  # payments a month
    "log_paid_out": ((1.3, 1.0, 0.9, 1.4), 0.35),
    "cash": ((-2.2, -1.6, -2.4, 0.2), 1.0),  # share of turnover
    "night": ((-2.5, -1.7, -2.0, -2.3), 0.7),  # share of payments
    "abroad": ((-4.0, -3.2, -2.9, -3.1), 1.0),  # share of turnover, countries of high risk
    "through": ((-0.5, 1.0, 0.5, 0.1), 1.0),  # share of what comes in that is gone in two days
}
LOGITS = ("cash", "night", "abroad", "through")
CUSTOMERS = {  # how a bank's means differ from these
    "birch": {"log_age": 0.2, "cash": 0.7},
    "cedar": {"log_turnover": 0.4, "log_paid_in": 0.2},
    "elm": {"log_age": -0.4, "night": 0.6, "cash": -0.7},
}

CIRCLE, AT_HOME, STRANGER = 50, 0.6, 0.25  # accounts in a circle; at its bank; paid outside it
TRANSFERS = (2.5, 0.5, 0.5, 1.0)  # everyday transfers that an account makes, on average, by label
RING, ELSEWHERE = 20, 0.9  # accounts in a ring; share of its transfers to another bank
VICTIMS = 1  # that a mule gets money from, on average
RINGS = {  # who pays how many of whom
    "fan-in": (("mule", "collector", 3), ("collector", "front", 3)),
    "chain": (("collector", "mule", 3), ("mule", "mule", 3), ("mule", "front", 1)),
    "invoices": (("front", "front", 3), ("front", "mule", 4), ("mule", "collector", 2)),
}
LATE = 0.03  # share of links that one bank alone lists


class Tables(NamedTuple):
    """One bank's: ``nodes`` (id, label, features), ``edges`` (source, target) between its own
    accounts, and ``links`` (node, party, other) to accounts of others."""

    nodes: pl.DataFrame
    edges: pl.DataFrame
    links: pl.DataFrame


def banks(accounts: int = 6000, seed: int = 0) -> dict[str, Tables]:
    """Every bank's tables, by its name."""
    rng = np.random.default_rng([seed, 0xBA2C])
    bank = np.repeat(np.arange(len(BANKS)), _sizes(accounts))
    label = _draw(LABEL_MIX[bank], rng)
    looks = _draw(LOOKS[label], rng)
    known = rng.random(accounts) >= np.array(OPEN)[bank]
    nodes = pl.DataFrame(
        {
            "id": _names(bank),
            "label": pl.Series(LABELS).gather(label).set(pl.Series(~known), None),
            "kind": np.where(
                rng.random(accounts) < np.array(BUSINESS)[looks], "business", "private"
            ),
            **_measured(looks, bank, rng),
        }
    )
    pairs = np.concatenate([_everyday(bank, label, rng), _rings(bank, label, rng)], axis=1)
    return _by_bank(nodes, bank, _once(pairs), rng)


def write(folder: Path, accounts: int = 6000, seed: int = 0) -> None:
    """Write every bank's tables as CSV into a folder of its own."""
    for name, tables in banks(accounts, seed).items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for stem, table in tables._asdict().items():
            table.write_csv(folder / name / f"{stem}.csv")


def _sizes(accounts: int) -> np.ndarray:
    ends = np.round(np.cumsum(SHARES) * accounts).astype(int)
    return np.diff(ends, prepend=0)


def _names(bank: np.ndarray) -> list[str]:
    """What each bank calls its accounts: its first letter and a number of its own."""
    number = np.concatenate([np.arange(size) for size in np.bincount(bank)])
    return [f"{BANKS[b][0].upper()}{k:05}" for b, k in zip(bank, number, strict=True)]


def _draw(shares: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One choice a row, with the row's probabilities."""
    return (rng.random((len(shares), 1)) > np.cumsum(shares, axis=1)[:, :-1]).sum(axis=1)


def _measured(
    looks: np.ndarray, bank: np.ndarray, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """The features that are numbers: a mean for the looks and the bank, and much noise."""
    found = {}
    for name, (means, sd) in FEATURES.items():
        shift = np.array([CUSTOMERS.get(b, {}).get(name, 0.0) for b in BANKS])
        value = rng.normal(np.array(means)[looks] + shift[bank], sd)
        found[name] = (1 / (1 + np.exp(-value)) if name in LOGITS else value).round(3)
    return found


def _everyday(bank: np.ndarray, label: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Who pays whom for a reason: pairs (2, m), in circles, with a few accounts that many pay."""
    n = len(bank)
    home = np.sort(rng.choice(len(BANKS), max(n // CIRCLE, len(BANKS)), p=SHARES))
    home[: len(BANKS)] = range(len(BANKS))  # every bank has one
    circle = rng.integers(0, len(home), n)
    for number in range(len(BANKS)):
        stays = (bank == number) & (rng.random(n) < AT_HOME)
        circle[stays] = rng.choice(np.flatnonzero(home == number), stays.sum())
    usual = np.array(TRANSFERS)[label]
    weight = usual * (1 + rng.pareto(1.5, n).clip(max=30))  # a shop is paid by many
    payer = np.repeat(np.arange(n), rng.poisson(usual))
    stranger = rng.random(len(payer)) < STRANGER

    order = np.argsort(circle, kind="stable")
    upto = np.concatenate([[0.0], np.cumsum(weight[order])])
    ends = np.searchsorted(circle[order], np.arange(len(home) + 1))
    low, high = upto[ends[circle[payer]]], upto[ends[circle[payer] + 1]]
    low, high = np.where(stranger, 0.0, low), np.where(stranger, upto[-1], high)
    place = np.searchsorted(upto, low + rng.random(len(payer)) * (high - low), side="right") - 1
    return np.stack([payer, order[place.clip(max=n - 1)]])


def _rings(bank: np.ndarray, label: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Who passes stolen money to whom, and the victims that it comes from: pairs (2, m)."""
    ordinary, suspicious = np.flatnonzero(label == 0), np.flatnonzero(label > 0)
    count = max(len(suspicious) // RING, 1)
    ring = rng.integers(0, count, len(suspicious))
    ways = rng.choice(len(RINGS), count)
    pairs = []
    for number, way in enumerate(ways):
        members = suspicious[ring == number]
        for payer_label, paid_label, times in list(RINGS.values())[way]:
            paid = members[label[members] == LABELS.index(paid_label)]
            for payer in members[label[members] == LABELS.index(payer_label)]:
                for _ in range(times):
                    away = paid[bank[paid] != bank[payer]]
                    choice = away if len(away) and rng.random() < ELSEWHERE else paid
                    if len(choice):
                        pairs.append((payer, rng.choice(choice)))
    mules = np.flatnonzero(label == LABELS.index("mule"))
    robbed = np.repeat(mules, rng.poisson(VICTIMS, len(mules)))
    victims = np.stack([rng.choice(ordinary, len(robbed)), robbed])
    return np.concatenate([np.array(pairs, dtype=np.int64).reshape(-1, 2).T, victims], axis=1)


def _once(pairs: np.ndarray) -> np.ndarray:
    """Each pair of two accounts once, whoever has paid."""
    return np.unique(np.sort(pairs[:, pairs[0] != pairs[1]], axis=0), axis=1)


def _by_bank(
    nodes: pl.DataFrame, bank: np.ndarray, pairs: np.ndarray, rng: np.random.Generator
) -> dict[str, Tables]:
    """What each bank knows: its accounts, the transfers between them, and those to other banks."""
    ids, names = nodes["id"].to_numpy(), np.array(BANKS)
    crosses = bank[pairs[0]] != bank[pairs[1]]
    within, across = pairs[:, ~crosses], pairs[:, crosses]
    late = rng.random(across.shape[1]) < LATE
    forgets = np.where(late, rng.integers(0, 2, across.shape[1]), -1)  # the end whose bank lacks it
    own = np.concatenate([across[0, forgets != 0], across[1, forgets != 1]])
    far = np.concatenate([across[1, forgets != 0], across[0, forgets != 1]])
    found = {}
    for number, name in enumerate(BANKS):
        source, target = within[:, bank[within[0]] == number]
        mine = np.flatnonzero(bank[own] == number)
        mine = mine[np.lexsort((far[mine], own[mine]))]
        node, other = own[mine], far[mine]
        found[name] = Tables(
            nodes.filter(bank == number),
            pl.DataFrame({"source": ids[source], "target": ids[target]}),
            pl.DataFrame({"node": ids[node], "party": names[bank[other]], "other": ids[other]}),
        )
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--accounts", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.accounts < 400:
        parser.error(f"--accounts is {options.accounts}; it must be 400 or more.")
    write(options.folder, options.accounts, options.seed)
    print(f"{options.folder}: {options.accounts} made-up accounts at {', '.join(BANKS)}")
