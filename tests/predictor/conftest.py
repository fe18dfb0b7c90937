"""A run with a predictor of every method, and one on tables."""

import numpy as np
import polars as pl
import pytest

import fedcover

METHODS = ("loc", "fed", "gen", "fed+prox+prior+mix", "fed+tuned", "gen+prior", "central")
ALPHAS = (0.1, 0.3)


@pytest.fixture(scope="session")
def graph():
    return fedcover.load("cora")


@pytest.fixture(scope="session")
def finished(graph):
    config = fedcover.Config(
        clients=3,
        methods=METHODS,
        scores=("lac", "aps", "raps", "daps", "slac"),
        alphas=ALPHAS,
        seeds=2,
        rounds=4,
        resplits=2,
        gen={"prototypes": (5,), "shares": (0.2,), "link_rounds": 2, "vae": {"epochs": 3}},
        personal={"local_rounds": 3, "tune_rounds": 2},
    )
    return fedcover.run(graph, config)


@pytest.fixture(scope="session")
def folder(finished, tmp_path_factory):
    return finished.save(tmp_path_factory.mktemp("runs") / "cora")


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    """Patients of three wards: numbers on wide scales, words, gaps, and some without a label."""
    folder, rng, n = tmp_path_factory.mktemp("own") / "patients", np.random.default_rng(0), 240
    folder.mkdir()
    label = rng.integers(0, 3, n)
    names = np.array(["cold", "flu", "other"])
    pulse = 60 + 20 * label + rng.normal(0, 8, n)
    frame = pl.DataFrame(
        {
            "id": [f"p{k}" for k in range(n)],
            "label": [None if k % 12 == 0 else names[label[k]] for k in range(n)],
            "client": rng.choice(["north", "south", "west"], n),
            "pulse": [None if k % 17 == 0 else round(float(pulse[k]), 2) for k in range(n)],
            "income": rng.normal(40_000, 9_000, n).round(0),
            "ward": rng.choice(["a", "b"], n),
        }
    )
    frame.write_csv(folder / "nodes.csv")
    ends = rng.integers(0, n, (2, 500))
    ends = ends[:, label[ends[0]] == label[ends[1]]]
    pl.DataFrame({"source": frame["id"].gather(ends[0]), "target": frame["id"].gather(ends[1])}
    ).write_csv(folder / "edges.csv")  # fmt: skip
    return folder


@pytest.fixture(scope="session")
def own_run(tables, tmp_path_factory):
    graph = fedcover.load(tables, missing="impute")
    config = fedcover.Config(
        partition="given", methods=("fed",), seeds=1, rounds=5, alphas=(0.2,), resplits=2
    )
    finished = fedcover.run(graph, config)
    return finished, finished.save(tmp_path_factory.mktemp("runs") / "own")


@pytest.fixture
def unchanged():
    """Compares two tables of sets."""
    return _unchanged


def _unchanged(before, after):
    """Nodes with a promise have the probabilities that they had, but for rounding."""
    kept = after.filter(kind="test")
    assert len(kept) > 0
    old = kept.select("node").join(before, on="node", maintain_order="left")
    assert kept["confidence"].to_numpy() == pytest.approx(old["confidence"].to_numpy(), abs=1e-6)
    assert kept["set"].to_list() == old["set"].to_list()
