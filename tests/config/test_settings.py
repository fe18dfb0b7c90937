from dataclasses import FrozenInstanceError, asdict
from inspect import signature

import numpy as np
import pytest

from fedcover import Config, UsageError
from fedcover.graphs import partition

NAN, INF = float("nan"), float("inf")

REFUSED = [
    (
        {"methods": ("loc", "gem")},
        "methods has 'gem'; it must be one of loc, fed, gen, fedsage, fedsage+, restored, central, "
        "or one of these with +neighbours, +prox, +prior, +tuned or +mix.",
    ),
    (
        {"methods": ("fed", "fed+neighbours"), "cut_edges": "unknown"},
        "methods has 'fed+neighbours', which needs edges between clients that both ends know: ",
    ),
    (
        {"cut_edges": "unknown", "known_share": 0.5},
        "known_share is 0.5, which needs cut_edges 'known'.",
    ),
    ({"known_share": 0}, "known_share is 0; it must be above 0 and at most 1."),
    ({"cut_edges": "some"}, "cut_edges is 'some'; it must be one of unknown, known."),
    ({"neighbour": {"cap": 2}}, "neighbour.cap, neighbour.norm and neighbour.delta need "),
    ({"neighbour": {"least": 0}}, "neighbour.least is 0; it must be a whole number of 1 or more."),
    (
        {"epsilon": 0},
        "epsilon is 0; it must lie between 0.1 and 100, or be inf for no differential privacy.",
    ),
    (
        {"epsilon": float("nan")},
        "epsilon is nan; it must lie between 0.1 and 100, or be inf for no",
    ),
    ({"epsilon": "low"}, "epsilon is 'low'; it must lie between 0.1 and 100, or be inf"),
    ({"epsilon": 5000}, "epsilon is 5000; it must lie between 0.1 and 100, or be inf for no "),
    ({"noise": 0}, "noise is 0; it must lie between 0.3 and 1000."),
    ({"epsilon": 1, "noise": 1}, "epsilon and noise are both set; give one of them."),
    (
        {"dp_prototypes": "reconstructions"},
        "dp_prototypes is 'reconstructions', which needs epsilon or noise.",
    ),
    (
        {"dp_prototypes": "posterior"},
        "dp_prototypes is 'posterior'; it must be one of prior, recon",
    ),
    ({"methods": ()}, "methods is empty; choose from loc, fed, gen, fedsage, "),
    ({"methods": ("fed", "loc", "fed")}, "methods names 'fed' twice."),
    (
        {"scores": ("APS",)},
        "scores has 'APS'; it must be one of lac, aps, aps-det, raps, daps, dlac, snaps, slac.",
    ),
    (
        {"scores": ()},
        "scores is empty; choose from lac, aps, aps-det, raps, daps, dlac, snaps, slac.",
    ),
    (
        {"quantiles": ("mean",)},
        "quantiles has 'mean'; it must be one of exact, theorem1, pooled, average, tdigest.",
    ),
    (
        {"client_shares": (1, 2), "clients": 2, "quantiles": "theorem1"},
        "client_shares is set, which needs 'exact' among the quantiles.",
    ),
    (
        {"client_shares": (1, 2), "clients": 2, "asked_about": "test"},
        "client_shares and asked_about are both set; give one of them.",
    ),
    ({"asked_about": "train"}, "asked_about is 'train'; it must be one of test, unlabelled."),
    (
        {"confidence": 0.9, "quantiles": ("theorem1", "pooled")},
        "confidence is set, which needs 'exact' among the quantiles.",
    ),
    ({"confidence": 1}, "confidence is 1; it must be at least 0.5 and below 1."),
    ({"confidence": NAN}, "confidence is nan; it must be at least 0.5 and below 1."),
    ({"max_share": 0}, "max_share is 0; it must be above 0 and at most 1."),
    ({"max_share": 1.5}, "max_share is 1.5; it must be above 0 and at most 1."),
    (
        {"max_share": 0.05},
        "max_share is 0.05; with 10 clients it must be at least 0.1.",
    ),
    *(
        ({"max_share": 0.5, **other}, "max_share is 0.5, which needs quantiles 'exact' and")
        for other in ({"calibrate": "class"}, {"quantiles": ("exact", "theorem1")})
    ),
    (
        {"max_share": 0.9, "clients": 2, "client_shares": (1, 2)},
        "client_shares and max_share are both set; shares that are set have no limit.",
    ),
    (
        {"client_shares": (1, 2), "clients": 2, "calibrate": "class"},
        "client_shares is set, which needs calibrate 'pooled' or 'client':",
    ),
    ({"asked_about": "test", "test": 0}, "asked_about is 'test' and test is 0, which leaves"),
    ({"robust": -1}, "robust is -1; it must be a whole number of 0 or more."),
    (
        {"robust": 2, "clients": 4},
        "robust is 2; with 4 clients it must be at most 1: fewer than half may lie.",
    ),
    (
        {"robust": 1, "calibrate": "class"},
        "robust is set, which needs quantiles 'exact' and calibrate 'pooled'.",
    ),
    (
        {"robust": 1, "quantiles": ("exact", "pooled")},
        "robust is set, which needs quantiles 'exact' and calibrate 'pooled'.",
    ),
    *(
        ({"clients": 2, "client_shares": shares}, f"client_shares {sentence}")
        for shares, sentence in [
            ((1, 2, 3), "has length 3; it must hold one number for each of the 2 clients."),
            (0.5, "has length 1; it must hold one number for each of the 2 clients."),
            ((0.5, -0.5), "has -0.5; every share must be a number of 0 or more."),
            ((NAN, 1), "has nan; every share must be a number of 0 or more."),
            ((INF, 1), "has inf; every share must be a number of 0 or more."),
            ((1, "2"), "has '2'; every share must be a number of 0 or more."),
            ((0, 0), "is 0 for every client; at least one must be above 0."),
            ({0.5}, "is {0.5}; it must be a tuple of numbers."),
        ]
    ),
    ({"partition": "kmeans"}, "partition is 'kmeans'; it must be one of metis, louvain, random,"),
    ({"beta": 0.1}, "beta is 0.1, which needs partition 'label-skew'."),
    ({"partition": "label-skew", "beta": 0}, "beta is 0; it must be a positive number."),
    ({"model": "gat"}, "model is 'gat'; it must be one of gcn, sage."),
    ({"temperature": "hot"}, "temperature is 'hot'; it must be one of pooled, averaged, none."),
    ({"alphas": ()}, "alphas is empty; give at least one alpha."),
    ({"alphas": (0.1, 0.0)}, "alphas has 0; every alpha must lie strictly between 0 and 1."),
    ({"alphas": (1.0,)}, "alphas has 1; every alpha"),
    ({"alphas": (NAN,)}, "alphas has nan; every alpha"),
    ({"alphas": (0.1, 0.10)}, "alphas names 0.1 twice."),
    ({"clients": 0}, "clients is 0; it must be a whole number of 1 or more."),
    ({"clients": 2.5}, "clients is 2.5; it must be a whole number of 1 or more."),
    ({"seeds": 0}, "seeds is 0; it must be a whole number of 1 or more."),
    ({"seeds": None}, "seeds is None; it must be a whole number of 1 or more."),
    ({"rounds": -1}, "rounds is -1; it must be a whole number of 1 or more."),
    ({"rounds": "9"}, "rounds is '9'; it must be a whole number of 1 or more."),
    ({"local_epochs": 0}, "local_epochs is 0; it must be a whole number of 1 or more."),
    ({"hidden": 0}, "hidden is 0; it must be a whole number of 1 or more."),
    ({"resplits": 0}, "resplits is 0; it must be a whole number of 1 or more."),
    ({"batch_size": -1}, "batch_size is -1; it must be a whole number of 0 or more."),
    ({"first_seed": -1}, "first_seed is -1; it must be a whole number of 0 or more."),
    ({"dropout": 1.0}, "dropout is 1; it must be at least 0 and below 1."),
    ({"dropout": -0.1}, "dropout is -0.1; it must be at least 0 and below 1."),
    ({"dropout": NAN}, "dropout is nan; it must be at least 0 and below 1."),
    ({"lr": 0.0}, "lr is 0; it must be a positive number."),
    ({"lr": INF}, "lr is inf; it must be a positive number."),
    ({"lr": NAN}, "lr is nan; it must be a positive number."),
    ({"train": 0.0}, "train is 0; it must lie strictly between 0 and 1."),
    ({"train": 1.0}, "train is 1; it must lie strictly between 0 and 1."),
    ({"valid": 1.0}, "valid is 1; it must be at least 0 and below 1."),
    ({"alphas": (0.1, 1.0000001)}, "alphas has 1.0000001; every alpha"),
    ({"alphas": ("0.1",)}, "alphas has '0.1'; every alpha must lie strictly between 0 and 1."),
    ({"alphas": "0.1"}, "alphas has '0.1'; every alpha must lie strictly between 0 and 1."),
    ({"alphas": (True,)}, "alphas has True; every alpha"),
    ({"alphas": None}, "alphas is None; it must be a tuple of numbers."),
    ({"alphas": {0.1}}, "alphas is {0.1}; it must be a tuple of numbers."),
    ({"methods": None}, "methods is None; it must be a tuple of words."),
    ({"methods": {"fed": 1}}, "methods is {'fed': 1}; it must be a tuple of words."),
    ({"methods": "fde"}, "methods has 'fde'; it must be one of loc, fed, gen, fedsage, "),
    (
        {"scores": (["lac"],)},
        "scores has ['lac']; it must be one of lac, aps, aps-det, raps, daps, dlac, snaps, slac.",
    ),
    (
        {"scores": 3},
        "scores has 3; it must be one of lac, aps, aps-det, raps, daps, dlac, snaps, slac.",
    ),
    ({"quantiles": b"exact"}, "quantiles is b'exact'; it must be a tuple of words."),
    (
        {"partition": None},
        "partition is None; it must be one of metis, louvain, random, label-skew,",
    ),
    ({"model": ["gcn"]}, "model is ['gcn']; it must be one of gcn, sage."),
    ({"clients": True}, "clients is True; it must be a whole number of 1 or more."),
    ({"seeds": True}, "seeds is True; it must be a whole number of 1 or more."),
    ({"batch_size": False}, "batch_size is False; it must be a whole number of 0 or more."),
    ({"dropout": "0.5"}, "dropout is '0.5'; it must be at least 0 and below 1."),
    ({"dropout": False}, "dropout is False; it must be at least 0 and below 1."),
    ({"train": None}, "train is None; it must lie strictly between 0 and 1."),
    ({"lr": True}, "lr is True; it must be a positive number."),
    ({"empty_sets": "no"}, "empty_sets is 'no'; it must be true or false."),
    ({"empty_sets": 1}, "empty_sets is 1; it must be true or false."),
    ({"unit_features": "yes"}, "unit_features is 'yes'; it must be true or false."),
    ({"unit_features": 0}, "unit_features is 0; it must be true or false."),
    ({"valid": -0.5}, "valid is -0.5; it must be at least 0 and below 1."),
]


@pytest.mark.parametrize(("changes", "sentence"), REFUSED, ids=[str(c) for c, _ in REFUSED])
def test_a_refusal_names_the_setting_its_value_and_what_is_accepted(changes, sentence):
    with pytest.raises(UsageError) as caught:
        Config(**changes)
    assert str(caught.value).startswith(sentence)
    assert caught.value.exit_status == 2


def test_the_default_preset_is_the_plain_config_and_has_the_guarantee():
    config = Config.preset("default")
    assert config == Config()
    assert config.quantiles == ("exact",)
    assert config.temperature == "pooled"
    assert config.empty_sets


def test_the_paper_preset_is_the_papers_setting():
    ours, paper = asdict(Config()), asdict(Config.preset("paper"))
    gen = {"linking": "global", "link_weight": 1.0, "screening": 5}
    gen["shares"] = ours["gen"]["shares"][1:]  # the cell without generated neighbours is ours
    assert ours["gen"]["shares"][0] == 0
    assert {key: value for key, value in paper.items() if value != ours[key]} == {
        "methods": ("loc", "fed", "gen"),
        "gen": ours["gen"] | gen,
        "scores": ("aps-det",),
        "quantiles": ("average",),
        "temperature": "averaged",
        "batch_size": 32,
        "patience": 10,
        "lr": 0.01,
        "unit_features": False,
        "central_decay": (0.0,),
    }


def test_the_default_is_the_chosen_recipe_and_plain_is_fedavg_without_it():
    assert Config().methods == ("loc", "fed", "fed+prox+prior+mix", "central")
    assert Config().scores == ("lac",)
    ours, plain = asdict(Config()), asdict(Config.preset("plain"))
    assert {key: value for key, value in plain.items() if value != ours[key]} == {
        "methods": ("loc", "fed", "central"),
        "scores": ("aps", "raps", "lac"),
        "lr": 0.01,
        "unit_features": False,
        "central_decay": (0.0,),
    }


def test_none_means_as_the_preset_has_it():
    config = Config.preset("paper", batch_size=None, scores=None, clients=None, seeds=3)
    assert config == Config.preset("paper", seeds=3)


def test_a_change_of_gens_settings_keeps_the_presets_others():
    config = Config.preset("paper", shares=(0.5,))
    assert config.gen.shares == (0.5,)
    assert config.gen.linking == "global"


def test_an_infinite_epsilon_means_no_differential_privacy():
    assert Config(epsilon=INF).privacy is None
    assert Config(epsilon=2.0).privacy.epsilon == 2.0
    assert Config(noise=2.0).privacy.noise == 2.0
    assert Config(epsilon=2.0, dp_prototypes="reconstructions").privacy.covered is False


def test_a_change_wins_over_the_preset():
    assert Config.preset("paper", batch_size=0, scores=("lac",)).batch_size == 0
    assert not Config.preset("default", empty_sets=False).empty_sets


def test_given_clients_need_no_number_and_may_have_one():
    assert Config.preset("default", partition="given").clients is None
    assert Config.preset("default", partition="given", clients=4).clients == 4
    assert Config(partition="given").clients is None
    assert Config.preset("paper", partition="given").clients is None


def test_beta_is_label_skews_and_its_default_that_of_partition():
    assert Config(partition="label-skew", beta=2).beta == 2
    assert Config(partition="random", beta=0.5) == Config(partition="random")
    assert signature(partition).parameters["beta"].default == Config().beta


@pytest.mark.parametrize("partition", ["metis", "louvain", "random", "label-skew"])
def test_the_other_partitions_make_ten_clients_unless_told(partition):
    assert Config(partition=partition).clients == 10
    assert Config(partition=partition, clients=None) == Config(partition=partition, clients=10)
    assert Config.preset("paper", partition=partition).clients == 10


def test_clients_shares_are_normalised_and_may_come_as_any_sequence():
    expected = Config(clients=3, client_shares=(0.5, 0.3, 0.2))
    assert expected.client_shares == (0.5, 0.3, 0.2)
    for same in ([5, 3, 2], np.array([0.25, 0.15, 0.1]), (500, 300.0, 200)):
        assert Config(clients=3, client_shares=same) == expected
    assert Config().client_shares is None
    given = Config(partition="given", quantiles=("exact", "theorem1"), client_shares=(1, 3))
    assert given.client_shares == (0.25, 0.75)  # how many clients there are, the graph knows


def test_several_values_may_come_as_any_sequence_or_as_one_alone():
    expected = Config(methods=("fed",), scores=("lac",), quantiles=("exact",), alphas=(0.25,))
    assert Config(methods=["fed"], scores=["lac"], quantiles=["exact"], alphas=[0.25]) == expected
    assert Config(methods="fed", scores="lac", quantiles="exact", alphas=0.25) == expected
    assert Config(methods=np.array(["fed"]), scores="lac", alphas=np.array([0.25])) == expected
    assert hash(Config(methods=["fed"], scores="lac", alphas=[0.25])) == hash(expected)


def test_alphas_are_told_apart_as_numbers():
    close = (0.1, 0.1 + 1e-9)  # alike in six digits
    assert Config(alphas=close).alphas == close
    with pytest.raises(UsageError, match=r"alphas names 0\.25 twice\."):
        Config(alphas=(np.float32(0.25), 0.25))


def test_preset_refuses_unknown_names_and_bad_values():
    with pytest.raises(
        UsageError, match=r"preset is 'papre'; it must be one of default, plain, paper"
    ):
        Config.preset("papre")
    with pytest.raises(UsageError, match="there is no setting called 'alpha'"):
        Config.preset("default", alpha=0.1)
    with pytest.raises(UsageError, match="rounds is 0"):
        Config.preset("paper", rounds=0)


def test_features_of_length_one_are_a_matter_of_yes_or_no():
    assert Config().unit_features is None  # the graph decides
    assert Config(unit_features=True).unit_features is True
    assert Config.preset("paper").unit_features is False
    assert Config.preset("paper", unit_features=True).unit_features is True
    assert Config(unit_features=np.True_) == Config(unit_features=True)


def test_numpy_integers_are_whole_numbers():
    assert Config(clients=np.int64(3), seeds=np.int32(2)).seed_range == range(2)


def test_seed_range_starts_at_the_first_seed():
    assert list(Config(seeds=3, first_seed=4).seed_range) == [4, 5, 6]


def test_a_config_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Config().clients = 3  # type: ignore[misc]
