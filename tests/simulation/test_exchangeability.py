"""Nothing that shapes scores may see a calibration or test label (docs/guarantee.md)."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from fedcover import run
from fedcover.carriers.lockstep import Lockstep
from fedcover.config import GenSettings, NeighGenSettings, PersonalSettings, VaeSettings
from fedcover.graphs import Role
from fedcover.simulation.evaluation import Judge

METHODS = (
    "loc",
    "fed",
    "gen",
    "fedsage+",
    "restored",
    "central",
    "fed+prox+prior+mix",
    "gen+prior+mix",
)
SCORES = ("aps", "aps-det", "raps", "lac", "daps", "slac")
SEEDS = 2
MIXTURES = ("fed+prox+prior+mix", "gen+prior+mix")


@dataclass
class Witness:
    """Remembers the models that were trained and the scores that sets are made of."""

    models: list = field(default_factory=list)
    scores: list = field(default_factory=list)

    def trained(self, program):
        """Every federation's model, or those of its clients, and what they say about all nodes."""
        federations = range(program.stack.federations)
        own, shared = program.own_weights(), None
        if program.plan.average:
            shared = [program.shared(f).weights for f in federations]
            own = [[weights] for weights in shared]
        logits = program.logits(shared)
        self.models += [[t.numpy() for w in own[f] for t in w] + logits[f] for f in federations]


@pytest.fixture(scope="module")
def roles():
    return np.random.default_rng(3).permutation(np.arange(120) % 4).astype(np.int8)


@pytest.fixture(scope="module")
def watch(make_toy, quick):
    """Run a graph with this split and these labels; returns the witness and what was chosen."""

    def watch(roles, y=None):
        witness, judge, finish = Witness(), Judge._judge, Lockstep._finish

        def remember(self, name, scores, *others):
            witness.scores.append(scores.copy())
            return judge(self, name, scores, *others)

        def finished(self, batch):
            request = next(iter(batch.values()))
            program = self._trainings[request.part, request.plan].program
            answer = finish(self, batch)
            witness.trained(program)
            return answer

        graph = make_toy(split=roles)
        if y is not None:
            graph.y = torch.from_numpy(y)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Judge, "_judge", remember)
            patch.setattr(Lockstep, "_finish", finished)
            config = quick(
                quantiles=("exact",),
                methods=METHODS,
                scores=SCORES,
                alphas=(0.1,),
                seeds=SEEDS,
                gen=GenSettings(
                    prototypes=(2, 5),
                    shares=(0.1, 0.5),
                    link_rounds=2,
                    screening=2,
                    vae=VaeSettings(
                        epochs=20, min_cluster=2
                    ),  # so that both M give graphs of their own
                ),
                neighgen=NeighGenSettings(warm_up=2, rounds=2, local_epochs=1),
                # Few nodes of the federation beside a client's own, so that both choose.
                personal=PersonalSettings(tune_rounds=3, local_rounds=5, shrinkage=5.0),
            )
            return witness, run(graph, config)

    return watch


@pytest.fixture(scope="module")
def plain(roles, watch):
    """The run that all others are compared with."""
    return watch(roles)


def labels_with_noise(roles, *noisy):
    y = np.arange(120) % 3
    chosen = np.isin(roles, noisy)
    y[chosen] = np.random.default_rng(9).integers(0, 3, size=chosen.sum())
    return y


def same(left, right):
    return all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


def test_noise_for_calibration_and_test_labels_changes_no_score(roles, watch, plain):
    plain, told = plain
    noisy, noised = watch(roles, labels_with_noise(roles, Role.CALIB, Role.TEST))
    shared = 8  # the six methods, and fed and gen with their priors
    personal = 4  # a tuned and a local model of each of these two
    grids = 2 * 4 + 1  # Gen's cells, trained besides, without and with the prior, and its VGAE
    grids += len(told.config.central_decay)
    assert len(plain.models) == (shared + personal + grids) * SEEDS
    assert len(plain.scores) == len(METHODS) * SEEDS * len(SCORES)
    assert all(same(a, b) for a, b in zip(plain.models, noisy.models, strict=True))
    assert same(plain.scores, noisy.scores)
    assert told.info["chosen_on_validation"] == noised.info["chosen_on_validation"]
    # Each of these would have shown in the scores: none chose to do nothing.
    for method in MIXTURES:
        weights = np.array(told.info["chosen_on_validation"][method]["mixture"])
        assert (weights > 0).any(axis=(0, 1)).all()
    # The noise did arrive: what is judged by those labels differs.
    assert not told.results["q_hat"].equals(noised.results["q_hat"])
    assert not told.results["accuracy"].equals(noised.results["accuracy"])


@pytest.mark.parametrize(
    ("role", "choices"),
    [
        (Role.TRAIN, ("temperature", "mixture")),
        (Role.VALID, ("temperature", "mixture", "daps", "slac")),
    ],
)
def test_the_witness_notices_the_labels_that_may_be_used(roles, watch, plain, role, choices):
    plain, told = plain
    noisy, noised = watch(roles, labels_with_noise(roles, role))
    by_method = SEEDS * len(SCORES)
    for first in range(0, len(plain.scores), by_method):
        own = slice(first, first + by_method)
        assert not same(plain.scores[own], noisy.scores[own]), METHODS[first // by_method]
    for method in MIXTURES:
        before, after = (f.info["chosen_on_validation"][method] for f in (told, noised))
        for choice in choices:
            assert len(before[choice]) == SEEDS
            assert before[choice] != after[choice], choice


def test_swapping_calibration_and_test_permutes_nothing_but_roles(roles, watch, plain):
    swapped = roles.copy()
    swapped[roles == Role.CALIB], swapped[roles == Role.TEST] = Role.TEST, Role.CALIB
    plain, told = plain
    other, changed = watch(swapped)
    assert all(same(a, b) for a, b in zip(plain.models, other.models, strict=True))
    assert same(plain.scores, other.scores)
    assert told.info["chosen_on_validation"] == changed.info["chosen_on_validation"]
    assert set(told.sets["node"]).isdisjoint(changed.sets["node"])


def test_a_random_exchange_of_roles_leaves_every_nodes_scores_alone(roles, watch, plain):
    pool = np.flatnonzero(roles >= Role.CALIB)
    mixed = roles.copy()
    mixed[pool] = np.random.default_rng(1).permutation(roles[pool])
    assert not np.array_equal(mixed, roles)
    plain, told = plain
    other, changed = watch(mixed)
    assert told.info["chosen_on_validation"] == changed.info["chosen_on_validation"]
    assert same(plain.scores, other.scores)
