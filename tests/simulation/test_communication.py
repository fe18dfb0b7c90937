"""The bytes of every method, against sums over the shapes of what its parties must tell each other.

Nothing here asks the ledger's code for a size: the paper's formulas (its section on complexity) and
those of ``docs/communication.md`` are written out with the numbers of one small federation.
"""

import pytest

from fedcover import run
from fedcover.config import GenSettings, NeighGenSettings, PersonalSettings, VaeSettings

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


# Personal recipes and graph scores

TUNE_ROUNDS, LOCAL_ROUNDS = 3, 5
POINTS = 66  # of the mixture's grid: tenths over three models
CANDIDATES = {"daps": 10, "slac": 21}  # weights of a graph score


@pytest.fixture(scope="module")
def personal(toy, quick):
    config = quick(
        methods=(
            "fed",
            "fed+prox",
            "fed+prior",
            "fed+tuned",
            "fed+prior+mix",
            "loc+prior",
            "fedsage+mix",
        ),
        scores=("lac", *CANDIDATES),
        quantiles=("exact",),
        alphas=(0.1,),
        seeds=1,
        personal=PersonalSettings(tune_rounds=TUNE_ROUNDS, local_rounds=LOCAL_ROUNDS),
    )
    return run(toy, config)


def sent(finished, method):
    (seed,) = finished.info["bytes_by_kind"][method]
    return seed


def alone(kind, rounds):
    """Training without averaging: only losses, and which round was the best."""
    return {
        f"validation loss, {kind}": up(K * 2 * LONG * rounds),
        f"best round, {kind}": down(K * LONG),
    }


def temperature(suffix=""):
    return {key + suffix: CONFORMAL[key] for key in ("temperature", "fitted temperature")}


def weights_of(score):
    grid = CANDIDATES[score]
    return {
        f"weights of {score}": {
            "up": K * (4 * grid * BINS * LONG + grid * LONG),
            "down": K * (4 * (2 * grid * LONG + LONG + grid * 4) + 2 * grid * LONG + grid * FLOAT),
        },
        f"chosen weights of {score}": down(K * 2 * LONG),
    }


JUDGING = {
    **temperature(),
    **weights_of("daps"),
    **weights_of("slac"),
    "quantile": {"up": K * 3 * 4 * BINS * LONG, "down": K * 3 * 4 * (LONG + 4)},
    "thresholds": down(K * 3 * FLOAT),
}
TUNED = alone("tuned", TUNE_ROUNDS)
MIXED = {
    **TUNED,
    **alone("local", LOCAL_ROUNDS),
    **temperature(", shared"),
    **temperature(", tuned"),
    **temperature(", local"),
    # a sum of losses for each point of the grid and the number of nodes; the means come back
    "mixture losses": up(K * (POINTS * LONG + LONG)),
    "mean mixture losses": down(K * POINTS * LONG),
}


def local_training():
    own = training(GCN)
    del own["weights"], own["training nodes"]
    return own


def test_a_prior_and_fedprox_send_nothing_more(personal):
    assert sent(personal, "fed") == training(GCN) | JUDGING
    assert sent(personal, "fed+prior") == sent(personal, "fed+prox") == sent(personal, "fed")
    assert sent(personal, "loc+prior") == local_training() | JUDGING


def test_tuning_sends_losses_alone(personal):
    assert sent(personal, "fed+tuned") == training(GCN) | TUNED | JUDGING


@pytest.mark.parametrize(("method", "model"), [("fed+prior+mix", GCN), ("fedsage+mix", SAGE)])
def test_a_mixture_sends_losses_and_slopes_and_nothing_else(personal, method, model):
    assert sent(personal, method) == training(model) | MIXED | JUDGING


def test_nothing_that_a_mixture_sends_grows_with_the_nodes(personal, make_toy):
    """Neither labels nor probabilities are sent: with twice the nodes no array is larger."""
    larger = run(make_toy(240), personal.config)
    columns = ("method", "kind", "direction", "client", "shape")
    few, many = (f.ledger.select(columns).unique().sort(columns) for f in (personal, larger))
    assert many.equals(few)


def test_the_mixtures_messages_have_their_rounds_and_shapes(personal):
    ledger = personal.ledger.filter(method="fed+prior+mix", client="0")
    rows = ledger.select("kind", "direction", "round", "rounds", "shape")

    def of(kind):
        return [row[1:] for row in rows.iter_rows() if row[0] == kind]

    def shaped(*entries):
        return [(way, first, rounds, list(shape)) for way, first, rounds, shape in entries]

    assert of("validation loss") == shaped(("up", 0, R, (2,)))
    assert of("validation loss, tuned") == shaped(("up", 0, TUNE_ROUNDS, (2,)))
    assert of("validation loss, local") == shaped(("up", 0, LOCAL_ROUNDS, (2,)))
    assert of("mixture losses") == shaped(("up", 0, 1, (POINTS,)), ("up", 0, 1, (1,)))
    assert of("mean mixture losses") == shaped(("down", 0, 1, (POINTS,)))
    for kind in ("shared", "tuned", "local"):
        asked = of(f"temperature, {kind}")
        assert sorted(asked) == sorted(
            shaped(*((way, r, 1, (BETAS,)) for way in ("up", "down") for r in range(4)))
        )
        assert of(f"fitted temperature, {kind}") == shaped(("down", 0, 1, (1,)))


# The rules for the quantile


@pytest.mark.parametrize(
    ("rule", "shares", "counted"),
    [
        ("pooled", None, {}),
        ("mixture", None, {"test nodes": up(K * LONG)}),
        ("mixture", (1, 2, 3), {}),
    ],
)
def test_other_ranks_are_found_by_the_same_counts(toy, quick, rule, shares, counted):
    """Only the shares of test nodes, where nobody gave them, cost one number a client more."""
    settings = {"methods": ("loc",), "scores": ("lac",), "alphas": (0.1, 0.3), "seeds": 1}
    exact = run(toy, quick(**settings, quantiles=("exact",)))
    other = run(toy, quick(**settings, quantiles=(rule,), mixture=shares))
    assert sent(other, "loc") == sent(exact, "loc") | counted
