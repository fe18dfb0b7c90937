"""What the verdict rests on, in simulation: it must fail where it should, and hardly otherwise."""

import numpy as np
import pytest

from fedcover import Config, run
from fedcover.conformal import beta_binomial_interval, calibrate, exact_rank, permutation_test
from fedcover.conformal.exchangeability import rejects
from fedcover.graphs.assemble import assemble
from fedcover.graphs.splits import Role
from fedcover.party.data import PartyData
from fedcover.report.folder import read_folder
from fedcover.report.payload import run_payload

ALPHA = 0.1


def coverages(shifts, sizes, seed, repeats=1500):
    """Of splits of parties whose scores are shifted, as many test as calibration nodes."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(repeats):
        scores, test = (
            [rng.random(n) + shift for n, shift in zip(sizes, shifts, strict=True)]
            for _ in range(2)
        )
        q_hat = calibrate(scores, ALPHA, "pooled").q_hat
        found.append(np.mean(np.concatenate(test).astype(np.float32) <= q_hat))
    return np.array(found)


def misses(shifts, sizes, seed, splits=1):
    n = sum(sizes)
    low, high = beta_binomial_interval([n] * splits, [n] * splits, [exact_rank(ALPHA, n)] * splits)
    means = coverages(shifts, sizes, seed).reshape(-1, splits).mean(axis=1)
    return np.mean((means < low) | (means > high))


@pytest.mark.parametrize("splits", [1, 5])
def test_one_pool_lies_in_its_interval_in_95_of_100_cases(splits):
    assert 0.02 <= misses((0, 0, 0), (50, 80, 70), 1, splits) <= 0.07


@pytest.mark.parametrize("shifts", [(0, 0.3, 0.6), (0, 5, 10), (0, 0.05, 2)])
def test_for_parties_that_differ_the_interval_is_conservative(shifts):
    assert misses(shifts, (50, 80, 70), 2) <= 0.05


def test_the_permutation_test_hardly_ever_rejects_an_honest_split():
    rng = np.random.default_rng(3)
    client = np.repeat(np.arange(4), 50)
    p_values = [
        permutation_test(rng.random(200) + client, client, rng.random(200) < 0.5, rng)
        for _ in range(200)
    ]
    assert np.mean([one.p_value <= 0.1 for one in p_values]) == pytest.approx(0.1, abs=0.06)
    assert np.mean([one.party_p_value <= 0.1 for one in p_values]) == pytest.approx(0.1, abs=0.06)
    assert sum(rejects(one.p_value, one.party_p_value) for one in p_values) <= 4


# Whole runs: four clients, three labels, features that nearly tell the label.


def toy(noise, split=None, n=1200, seed=0):
    """``noise``: by node, how much its features hide its label."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    x = np.eye(3, 24)[y] * 2 + rng.normal(size=(n, 24)) * noise[:, None]
    client = np.arange(n) % 4
    source = rng.integers(0, n, n)
    target = (source + 4 * rng.integers(1, n // 4, n)) % n
    names = ["a", "b", "c", "d"]
    return assemble(
        x, np.stack([source, target]), y, name="toy", label_names=["x", "y", "z"],
        node_ids=[str(i) for i in range(n)], client=client, client_names=names, split=split,
    )  # fmt: skip


def verdict(graph, tmp_path, **changes):
    """The card on the guarantee, the recorded test, and the results."""
    config = Config(
        partition="given", clients=4, methods=("fed",), scores=("lac",), alphas=(ALPHA,),
        hidden=8, resplits=40, **{"rounds": 10, "seeds": 2} | changes,
    )  # fmt: skip
    finished = run(graph, config)
    payload = run_payload(read_folder(finished.save(tmp_path / "run")))
    ((_, held, _),) = payload["verdicts"].values()
    (test,) = finished.info["exchangeability"]
    assert (test["method"], test["score"]) == ("fed", "lac")
    return held, finished.info, finished.results


def roles(n=1200, seed=1):
    """Roles at random, a quarter each."""
    return np.random.default_rng(seed).permuted(np.repeat(np.arange(4), n // 4))


def in_band(results):
    return results["coverage"].mean() > 1 - ALPHA - 0.005


HONEST = 8
"""Runs, of which one in thirty or so is a No by chance."""


def test_honest_runs_are_hardly_ever_a_no(tmp_path):
    answers = []
    for number in range(HONEST):
        held, info, _ = verdict(toy(np.ones(1200), seed=number), tmp_path / str(number))
        answers.append(held["answer"])
        assert info["split"] == "drawn"
        assert "the 2 splits that were calibrated" in held["text"]
    assert answers.count("No") <= 1
    assert "Yes" in answers


def test_honest_splits_that_were_given_are_hardly_ever_a_no_and_count_once(tmp_path):
    answers = []
    for number in range(HONEST):
        graph = toy(np.ones(1200), roles(seed=number), seed=number)
        held, info, _ = verdict(graph, tmp_path / str(number))
        answers.append(held["answer"])
        assert info["split"] == "given"
        assert "All seeds share it" in held["text"]
    assert answers.count("No") <= 1
    assert "Yes" in answers


def test_a_model_trained_on_calibration_labels_is_a_no(tmp_path, monkeypatch):
    nodes = PartyData.nodes

    def leaking(self, role):
        found = nodes(self, role)
        return np.union1d(found, nodes(self, Role.CALIB)) if role == Role.TRAIN else found

    monkeypatch.setattr(PartyData, "nodes", leaking)
    held, info, results = verdict(toy(np.full(1200, 2.0)), tmp_path, rounds=60, seeds=10)
    assert in_band(results)
    assert held["answer"] == "No"
    assert info["exchangeability"][0]["p_value"] <= 0.0025


def test_a_given_split_with_harder_test_nodes_is_a_no(tmp_path):
    split = roles()
    held, _, results = verdict(toy(np.where(split == Role.TEST, 2.5, 1.0), split), tmp_path)
    assert in_band(results)
    assert results["coverage_split"].max() < 1 - ALPHA - 0.05
    assert held["answer"] == "No"
    assert "where it was calibrated" in held["text"]


def test_a_party_whose_test_nodes_come_from_elsewhere_is_named(tmp_path):
    split, client = roles(), np.arange(1200) % 4
    noise = np.ones(1200)
    noise[(split == Role.TEST) & (client == 2)] = 6.0
    noise[(split == Role.TEST) & (client != 2)] = 0.9  # so that the mean moves less
    held, _, _ = verdict(toy(noise, split), tmp_path)
    assert held["answer"] == "No"
    assert "most of all at client c" in held["text"]
