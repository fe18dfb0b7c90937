"""The bytes of every method, against sums over the shapes of what its parties must tell each other.

Nothing here asks the ledger's code for a size: the paper's formulas (its section on complexity) and
those of ``docs/communication.md`` are written out with the numbers of one small federation.
"""

import numpy as np
import pytest

from fedcover import run
from fedcover.config import GenSettings, NeighGenSettings, PersonalSettings, VaeSettings

K, D, LABELS, HIDDEN, R = 3, 6, 3, 8, 4  # clients, features, labels, hidden units, rounds
FLOAT, LONG = 4, 8  # bytes of a weight or score, and of a count, a float64, a number to be added
ORDER, ALONE = 1 + LONG, 1 + 3 * LONG  # what asks for a round of shared, and of own training
LOSS = 2 * LONG  # the sum over validation nodes, and their number

GCN = D * HIDDEN + HIDDEN + HIDDEN * LABELS + LABELS
SAGE = 2 * D * HIDDEN + HIDDEN + 2 * HIDDEN * LABELS + LABELS

M, P, SCREENING = (2, 3), (0.1, 0.5), 2
VGAE_HIDDEN, VGAE_LATENT, VGAE_ROUNDS = 10, 4, 5
VGAE = D * VGAE_HIDDEN + VGAE_HIDDEN + VGAE_HIDDEN * 2 * VGAE_LATENT + 2 * VGAE_LATENT
GENERATOR_LATENT, GENERATOR_HIDDEN, EXCHANGES = 4, 5, 3
GENERATOR = GENERATOR_LATENT * GENERATOR_HIDDEN + GENERATOR_HIDDEN + GENERATOR_HIDDEN * D + D
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
    return run(toy, config)


def each(up, down):
    """What each of the clients sends and gets."""
    return {"up": K * up, "down": K * down}


def averaged(model, rounds, *, kept=True, width=FLOAT):
    """FedAvg: every round a change goes up, twice as wide as a weight, and every average comes down
    with the next order; the last one is only measured. What is kept comes down once more."""
    return each(
        up=rounds * LONG * model + (rounds + 1) * LOSS,
        down=(rounds + 1) * ORDER + (rounds + kept) * width * model,
    )


def alone(rounds):
    """Training without averaging: losses, and which round is the best."""
    return each(up=rounds * LOSS, down=rounds * ALONE + LONG)


def temperature(finished, method):
    """Four rounds of slopes, or one where it is at a bound."""
    (fitted,) = finished.info["chosen_on_validation"][method]["temperature"]
    return slopes(1 if np.isclose(fitted, (0.05, 20.0)).any() else 4)


def slopes(rounds):
    return each(up=rounds * BETAS * LONG, down=rounds * BETAS * LONG + LONG)


def constants(grid):
    """Four rounds of counts, asked by two constants, the byte's place and prefixes; one of kept
    labels, asked by the constants and thresholds; and what was chosen."""
    asked = 2 * grid * LONG
    return each(
        up=4 * grid * BINS * LONG + grid * LONG,
        down=4 * (asked + LONG + grid * 4) + asked + grid * FLOAT + 2 * LONG,
    )


def thresholds(cases):
    """Four rounds of counts for each; then thresholds go down, and five counts of sets come up."""
    return {
        "quantile": each(up=cases * 4 * BINS * LONG, down=cases * 4 * (LONG + 4)),
        "sets": each(up=cases * 5 * LONG + LONG, down=cases * FLOAT),
    }


def sent(finished, method):
    (seed,) = finished.info["bytes_by_kind"][method]
    return seed


def conformal(finished, method):
    return {
        "temperature": temperature(finished, method),
        "raps": constants(GRID),
        **thresholds(SCORES * LEVELS),
    }


def test_loc_sends_no_weights(measured):
    assert sent(measured, "loc") == {"losses": alone(R)} | conformal(measured, "loc")


@pytest.mark.parametrize(("method", "model"), [("fed", GCN), ("fedsage", SAGE)])
def test_fedavg_sends_the_models_both_ways(measured, method, model):
    trained = {"weights": averaged(model, R)}
    assert sent(measured, method) == trained | conformal(measured, method)


def test_gen_sends_prototypes_and_the_vgae_and_pays_for_its_choice(measured):
    cell = averaged(GCN, SCREENING, kept=False)
    cells = len(M) * len(P)
    generating = {
        # every M of the grid goes up once; all rows come down to each, with their owners
        "prototypes": each(up=sum(M) * D * FLOAT, down=K * sum(M) * (D * FLOAT + LONG)),
        "VGAE weights": averaged(VGAE, VGAE_ROUNDS, width=LONG),  # in double precision
        "choice of M and p": {
            "up": cells * cell["up"],
            "down": cells * cell["down"] + K * 2 * LONG,  # and what was chosen
        },
        "weights": averaged(GCN, R),
    }
    assert sent(measured, "gen") == generating | conformal(measured, "gen")


def test_fedsage_plus_sends_every_generator_to_all_others(measured):
    found = dict(sent(measured, "fedsage+"))
    exchange = found.pop("generators")
    assert found == {"weights": averaged(SAGE, R)} | conformal(measured, "fedsage+")
    # In each exchange a generator and some latent means go up, those of all come down, a gradient
    # for each goes up, and their sum for the own one comes down.
    fixed = each(
        up=EXCHANGES * GENERATOR * (FLOAT + K * LONG),
        down=(EXCHANGES + 1) * LONG + EXCHANGES * GENERATOR * (K * FLOAT + LONG),
    )
    row = EXCHANGES * GENERATOR_LATENT * FLOAT
    means = (exchange["up"] - fixed["up"]) // row
    assert K <= means <= K * NeighGenSettings().groups
    owned = EXCHANGES * means * (GENERATOR_LATENT * FLOAT + LONG)
    assert exchange == {"up": fixed["up"] + means * row, "down": fixed["down"] + K * owned}


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


def judging(finished, method):
    return {
        "temperature": temperature(finished, method),
        **{f"weights of {name}": constants(grid) for name, grid in CANDIDATES.items()},
        **thresholds(3),
    }


def mixed():
    """A tuned model, whose start is judged, too; a local one; and the mixture's losses, a sum for
    each point of the grid and the number of nodes. The means come back."""
    return {
        "losses, tuned": alone(1 + TUNE_ROUNDS),
        "losses, local": alone(LOCAL_ROUNDS),
        "mixture": each(up=POINTS * LONG + LONG, down=POINTS * LONG),
    }


@pytest.mark.parametrize("method", ["fed", "fed+prior", "fed+prox"])
def test_a_prior_and_fedprox_send_nothing_more(personal, method):
    assert sent(personal, method) == {"weights": averaged(GCN, R)} | judging(personal, method)


def test_a_prior_sends_nothing_more_where_nothing_is_averaged(personal):
    assert sent(personal, "loc+prior") == {"losses": alone(R)} | judging(personal, "loc+prior")


def test_tuning_sends_losses_alone(personal):
    assert sent(personal, "fed+tuned") == {
        "weights": averaged(GCN, R),
        "losses, tuned": alone(1 + TUNE_ROUNDS),
        **judging(personal, "fed+tuned"),
    }


@pytest.mark.parametrize(("method", "model"), [("fed+prior+mix", GCN), ("fedsage+mix", SAGE)])
def test_a_mixture_sends_losses_and_slopes_and_nothing_else(personal, method, model):
    found = dict(sent(personal, method))
    for kind in ("shared", "tuned", "local"):  # each model's own temperature
        assert found.pop(f"temperature {kind}") in (slopes(4), slopes(1))
    trained = {"weights": averaged(model, R)}
    assert found == trained | mixed() | judging(personal, method)


def test_nothing_that_a_mixture_sends_grows_with_the_nodes(personal, make_toy):
    """Neither labels nor probabilities are sent: with twice the nodes no array is larger."""
    larger = run(make_toy(240), personal.config)
    columns = ("method", "kind", "direction", "client", "shape")
    few, many = (f.ledger.select(columns).unique().sort(columns) for f in (personal, larger))
    assert many.equals(few)


def test_the_mixtures_messages_have_their_rounds_and_shapes(personal):
    ledger = personal.ledger.filter(method="fed+prior+mix", client="0")
    rows = ledger.select("kind", "array", "direction", "round", "rounds", "type", "shape").rows()

    def of(kind, *arrays):
        return [row[1:] for row in rows if row[0] == kind and row[1] in arrays]

    def losses(rounds):
        return [(name, "up", 0, rounds, "int64", [1]) for name in ("loss", "count")]

    assert of("weights", "loss", "count") == losses(R + 1)
    assert of("losses, tuned", "loss", "count") == losses(1) + losses(TUNE_ROUNDS)
    assert of("losses, local", "loss", "count") == losses(LOCAL_ROUNDS)
    assert of("mixture", "losses", "n", "mean") == [
        ("losses", "up", 0, 1, "int64", [POINTS]),
        ("n", "up", 0, 1, "int64", [1]),
        ("mean", "down", 0, 1, "float64", [POINTS]),
    ]
    for kind in ("shared", "tuned", "local"):
        assert of(f"temperature {kind}", "beta", "slopes", "temperature") == [
            ("beta", "down", 0, 4, "float64", [BETAS]),
            ("slopes", "up", 0, 4, "int64", [BETAS]),
            ("temperature", "down", 0, 1, "float64", []),
        ]


# The rules for the quantile


@pytest.mark.parametrize(
    ("rule", "shares"), [("pooled", None), ("exact", None), ("exact", (1, 2, 3))]
)
def test_other_ranks_are_found_by_the_same_counts(toy, quick, rule, shares):
    """The shares of test nodes are known from the counts that everybody told at the beginning."""
    settings = {"methods": ("loc",), "scores": ("lac",), "alphas": (0.1, 0.3), "seeds": 1}
    theorem1 = run(toy, quick(**settings, quantiles=("theorem1",)))
    other = run(toy, quick(**settings, quantiles=(rule,), client_shares=shares))
    assert sent(other, "loc") == sent(theorem1, "loc")
