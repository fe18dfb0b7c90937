"""Two run folders that the page's tests share: a hostile toy, and Cora for the browser."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fedcover
from fedcover import Config
from fedcover.graphs.assemble import assemble

LABELS = ["</script><script>alert(1)</script>", "b & \"quotes\" 'too'", "<!-- c \u2028 -->"]


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory) -> Path:
    """A run on 150 nodes whose names try to break out of the page; two rules, two seeds."""
    rng = np.random.default_rng(7)
    n = 150
    y = np.arange(n) % 3
    source = rng.integers(0, n, size=3 * n)
    target = (source + 3 * rng.integers(1, n // 3, size=3 * n)) % n
    ids = [f"n{i}" for i in range(n)]
    ids[:4] = ["</script><b>", '"><img src=x onerror=alert(1)>', "a'b&c", "{{ 7*7 }}"]
    graph = assemble(
        rng.normal(size=(n, 6)) + np.eye(3, 6)[y],
        np.stack([source, target]),
        y,
        name="<toy>",
        label_names=LABELS,
        node_ids=ids,
    )
    config = Config(
        clients=3,
        partition="random",
        methods=("loc", "fed", "central"),
        scores=("lac", "aps-det"),
        quantiles=("exact", "average"),
        alphas=(0.1, 0.25),
        seeds=2,
        rounds=4,
        hidden=8,
        resplits=9,
    )
    return fedcover.run(graph, config).save(tmp_path_factory.mktemp("toy") / "run")


@pytest.fixture(scope="session")
def cora_folder(tmp_path_factory) -> Path:
    """A short run on Cora with three clients."""
    config = Config(
        clients=3,
        methods=("loc", "fed", "central"),
        scores=("lac", "aps"),
        quantiles=("exact", "average"),
        seeds=2,
        rounds=8,
        hidden=16,
        resplits=20,
    )
    finished = fedcover.run(fedcover.load("cora"), config)
    return finished.save(tmp_path_factory.mktemp("cora") / "run")


@pytest.fixture(scope="session")
def grid_rows() -> pl.DataFrame:
    """``write_grid_page``'s rows for two graphs, two K, two methods, and two levels."""
    return pl.DataFrame(
        [
            grid_row(dataset, clients, method, alpha, seed)
            for dataset in ("cora", "pubmed")
            for clients in (3, 10)
            for method in ("fed", "fed+prior", "central")
            for alpha in (0.1, 0.2)
            for seed in (0, 1)
        ]
    )


def grid_row(dataset: str, clients: int, method: str, alpha: float, seed: int) -> dict[str, object]:
    size = {"fed": 2.0, "fed+prior": 1.5, "central": 1.0}[method] + seed / 10 - alpha
    coverage = 1 - alpha + 0.001
    groups = [("client", str(k), 30.0, coverage - 0.01 * k, size) for k in range(clients)]
    groups += [("class", "a", 60.0, coverage, size), ("position", "boundary", 9.0, 0.8, size)]
    groups += [("size", "1", 60.0, 0.9, 1.0), ("size", "2", 40.0, 0.95, 2.0)]
    names = ("kind", "group", "n_test", "coverage", "set_size")
    return {
        "dataset": dataset,
        "clients": clients,
        "partition": "metis",
        "method": method,
        "model": "gcn",
        "score": "lac",
        "quantile": "exact",
        "alpha": alpha,
        "seed": seed,
        "n_calibration": 1000,
        "n_test": 1000,
        "q_hat": 0.8,
        "coverage": coverage,
        "coverage_split": coverage,
        "set_size": size,
        "singleton_rate": 0.6,
        "empty_rate": 0.0,
        "singleton_hits": 0.95,
        "worst_slab_coverage": 0.7,
        "min_client_coverage": 0.8,
        "class_coverage_gap": 0.1,
        "accuracy": 0.8,
        "train_seconds": 1.0,
        "preset": "default",
        "variant": "",
        "coverage_sd": 0.01,
        "groups": [dict(zip(names, group, strict=True)) for group in groups],
    }


@pytest.fixture
def make_cell() -> Callable[..., dict[str, object]]:
    """``make_cell(method, coverage, size, **changes)``: a cell as the verdict sees it."""

    def make(method="fed", coverage=0.903, size=2.0, **changes):
        cell = {
            "preset": "",
            "variant": "",
            "dataset": "cora",
            "clients": 5,
            "partition": "metis",
            "method": method,
            "score": "lac",
            "quantile": "exact",
            "alpha": 0.1,
            "set_size": size,
            "empty_rate": 0.025,
            "coverage": coverage,
            "coverage_split": coverage,
            "split_low": 0.887,
            "split_high": 0.919,
            "given": False,
            "p_value": 0.4,
            "party": "2",
            "party_p_value": 0.7,
            "coverage_se": 0.001,
            "below": coverage < 0.897,
            "seeds": 2,
            "low": 0.9,
            "high": 0.905,
            "option": method != "central",
            "worst": {"group": "3", "seed": 1, "n_test": 40.0, "coverage": 0.81, "among": 10},
            "worst_class": {
                "group": "b",
                "seed": None,
                "n_test": 21.0,
                "coverage": 0.72,
                "among": 3,
            },
        }
        return cell | changes

    return make
