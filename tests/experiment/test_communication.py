"""The bytes of every method, against sums over the shapes of what its parties must tell each other.

Nothing here asks the ledger's code for a size: the paper's formulas (its section on complexity) and
those of ``docs/communication.md`` are written out with the numbers of one small federation.
"""

import pytest

from fedcover import run
from fedcover.models.vae import VaeSettings
from fedcover.neighbors.neighgen import NeighGenSettings
from fedcover.neighbors.settings import GenSettings

K, D, LABELS, HIDDEN, R = 3, 6, 3, 8, 4  # clients, features, labels, hidden units, rounds
FLOAT, LONG = 4, 8  # bytes of a weight or score, and of a count or a float64

GCN = FLOAT * (D * HIDDEN + HIDDEN + HIDDEN * LABELS + LABELS)
SAGE = FLOAT * (2 * D * HIDDEN + HIDDEN + 2 * HIDDEN * LABELS + LABELS)

M, P, SCREENING = (2, 3), (0.1, 0.5), 2
VGAE_HIDDEN, VGAE_LATENT, VGAE_ROUNDS = 10, 4, 5
VGAE = FLOAT * (D * VGAE_HIDDEN + VGAE_HIDDEN + VGAE_HIDDEN * 2 * VGAE_LATENT + 2 * VGAE_LATENT)
GENERATOR_LATENT, GENERATOR_HIDDEN, EXCHANGES = 4, 5, 3
GENERATOR = FLOAT * (
    GENERATOR_LATENT * GENERATOR_HIDDEN + GENERATOR_HIDDEN + GENERATOR_HIDDEN * D + D
)
SCORES, LEVELS, GRID, BINS, BETAS = 2, 2, 21, 256, 33


@pytest.fixture(scope="module")
def measured(toy, quick):
    gen = GenSettings(
        prototypes=M,
        shares=P,
        vae=VaeSettings(epochs=5, min_cluster=1),
        link_hidden=VGAE_HIDDEN,
        link_latent=VGAE_LATENT,
        link_rounds=VGAE_ROUNDS,
        screening=SCREENING,
    )
    neighgen = NeighGenSettings(latent=GENERATOR_LATENT, hidden=GENERATOR_HIDDEN, rounds=EXCHANGES)
    config = quick(
        methods=("loc", "fed", "gen", "fedsage", "fedsage+"),
        scores=("raps", "lac"),
        quantiles=("exact",),
        alphas=(0.1, 0.3),
        seeds=1,
        gen=gen,
        neighgen=neighgen,
    )
    return {method: seeds[0] for method, seeds in run(toy, config).info["bytes_by_kind"].items()}


def both_ways(count):
    return {"up": count, "down": count}


def down(count):
    return {"up": 0, "down": count}


def up(count):
    return {"up": count, "down": 0}


def training(model):
    """FedAvg's 2·K·|Θ|·R, n_k once, and each round the sum and number of validation losses."""
    return {
        "weights": both_ways(K * model * R),
        "training nodes": up(K * LONG),
        "validation loss": up(K * 2 * LONG * R),
        "best round": down(K * LONG),
    }


CONFORMAL = {
    "temperature": both_ways(K * 4 * BETAS * LONG),
    "fitted temperature": down(K * LONG),
    # four rounds of counts (asked by ν, k_reg, the byte's place, prefixes), one of kept labels
    "raps constants": {
        "up": K * (4 * GRID * BINS * LONG + GRID * LONG),
        "down": K * (4 * (2 * GRID * LONG + LONG + GRID * 4) + 2 * GRID * LONG + GRID * FLOAT),
    },
    "chosen raps constants": down(K * 2 * LONG),
    "quantile": {
        "up": K * SCORES * LEVELS * 4 * BINS * LONG,
        "down": K * SCORES * LEVELS * 4 * (LONG + 4),
    },
    "thresholds": down(K * SCORES * LEVELS * FLOAT),
}


def test_loc_sends_no_weights(measured):
    alone = training(GCN)
    del alone["weights"], alone["training nodes"]
    assert measured["loc"] == alone | CONFORMAL


@pytest.mark.parametrize(("method", "model"), [("fed", GCN), ("fedsage", SAGE)])
def test_fedavg_sends_the_models_both_ways(measured, method, model):
    assert measured[method] == training(model) | CONFORMAL


def test_gen_sends_prototypes_and_the_vgae_and_pays_for_its_choice(measured):
    cells = len(M) * len(P)
    generating = {
        # every M of the grid goes up once, and down to each of the K − 1 others
        "prototypes": {"up": K * sum(M) * D * FLOAT, "down": K * (K - 1) * sum(M) * D * FLOAT},
        "VGAE weights": both_ways(K * VGAE * VGAE_ROUNDS),
        "weights, choice of M and p": both_ways(cells * K * GCN * SCREENING),
        "training nodes, choice of M and p": up(cells * K * LONG),
        "validation loss, choice of M and p": up(cells * K * 2 * LONG * SCREENING),
        "chosen M and p": down(K * 2 * LONG),
    }
    assert measured["gen"] == generating | training(GCN) | CONFORMAL


def test_fedsage_plus_sends_every_generator_to_all_others(measured):
    sent = dict(measured["fedsage+"])
    means = sent.pop("latent means")
    once, spread = K * GENERATOR * EXCHANGES, K * (K - 1) * GENERATOR * EXCHANGES
    exchange = {
        "generator": {"up": once, "down": spread},
        "generator gradient": {"up": spread, "down": once},
    }
    assert sent == exchange | training(SAGE) | CONFORMAL
    assert means["down"] == (K - 1) * means["up"]
    row = GENERATOR_LATENT * FLOAT * EXCHANGES
    assert means["up"] % row == 0
    assert K <= means["up"] // row <= K * NeighGenSettings().groups
