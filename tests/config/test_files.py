"""Settings as TOML: round trip, what wins over what, and one sentence for what is wrong."""

import tomllib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcover import Config, DataError, UsageError
from fedcover.config import (
    GenSettings,
    NeighGenSettings,
    PersonalSettings,
    VaeSettings,
    configured,
    read_settings,
    to_toml,
)
from fedcover.config.settings import PRESETS

POSITIVE = st.floats(1e-300, 1e300)
BETWEEN = st.floats(0, 1, exclude_min=True, exclude_max=True)
COUNT = st.integers(1, 10**9)


def some(values, **bounds):
    return st.lists(values, min_size=1, unique=True, **bounds).map(tuple)


VAES = st.builds(
    VaeSettings,
    hidden=COUNT,
    lr=POSITIVE,
    rho=BETWEEN,
    beta=st.floats(0, 1e9),
    binary=st.sampled_from([None, True, False]),
)
GENS = st.builds(
    GenSettings,
    prototypes=some(COUNT, max_size=5),
    shares=some(BETWEEN, max_size=5),
    linking=st.sampled_from(["node", "global"]),
    link_lr=POSITIVE,
    vae=VAES,
)
PERSONALS = st.builds(
    PersonalSettings,
    prox=POSITIVE,
    shrinkage=st.floats(0, None),
    tune_rounds=COUNT,
)
CONFIGS = st.builds(
    Config,
    clients=st.none() | COUNT,
    partition=st.sampled_from(["metis", "louvain", "random", "label-skew", "given"]),
    methods=some(st.sampled_from(["loc", "fed", "gen", "fedsage+", "fed+prox+prior+mix"])),
    model=st.sampled_from(["gcn", "sage"]),
    scores=some(st.sampled_from(["lac", "aps", "aps-det", "raps", "daps"])),
    quantiles=some(st.sampled_from(["exact", "theorem1", "average"])),
    asked_about=st.sampled_from([None, "test", "unlabelled"]),
    alphas=some(BETWEEN, max_size=4),
    first_seed=st.integers(0, 2**40),
    patience=st.none() | COUNT,
    batch_size=st.integers(0, 10**6),
    dropout=st.floats(0, 1, exclude_max=True),
    lr=POSITIVE,
    unit_features=st.sampled_from([None, True, False]),
    empty_sets=st.booleans(),
    epsilon=st.none() | st.floats(0.1, 100),
    gen=GENS,
    neighgen=st.builds(NeighGenSettings, lr=POSITIVE, targets=st.sampled_from(["means", "nodes"])),
    personal=PERSONALS,
)


@settings(deadline=None, max_examples=150)
@given(CONFIGS)
def test_what_is_written_is_read_back(tmp_path_factory, config):
    file = tmp_path_factory.mktemp("round") / "trip.toml"
    file.write_text(to_toml(config), encoding="utf-8")
    assert configured(file) == config


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=9))
def test_clients_shares_are_read_back(tmp_path_factory, shares):
    config = Config(client_shares=shares, clients=len(shares))
    file = tmp_path_factory.mktemp("round") / "trip.toml"
    file.write_text(to_toml(config), encoding="utf-8")
    assert configured(file) == config == replace(config)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_read_back(tmp_path, preset):
    file = tmp_path / "preset.toml"
    file.write_text(to_toml(Config.preset(preset)), encoding="utf-8")
    assert configured(file) == Config.preset(preset)
    file.write_text(f'preset = "{preset}"')
    assert configured(file) == Config.preset(preset)


def test_what_is_written_by_hand():
    text = to_toml(Config(lr=1e-05, patience=7, personal=PersonalSettings(shrinkage=float("inf"))))
    head = text.partition("\n[gen]\n")[0].splitlines()
    assert head[:3] == ["clients = 10", 'partition = "metis"', "beta = 0.5"]
    assert 'methods = ["loc", "fed", "fed+prox+prior+mix", "central"]' in head
    assert {"lr = 1e-05", "patience = 7", "# epsilon: not set", "empty_sets = true"} <= set(head)
    assert tomllib.loads(text)["personal"]["shrinkage"] == float("inf")
    assert tomllib.loads(text)["gen"]["vae"]["min_cluster"] == 5


def test_without_file_and_options_it_is_the_default():
    assert configured() == Config()
    assert configured(preset="plain", hidden=8) == Config.preset("plain", hidden=8)


def test_options_win_over_the_file_and_the_file_over_the_preset(tmp_path):
    file = tmp_path / "some.toml"
    file.write_text(
        'preset = "paper"\nhidden = 16\nalphas = 0.3\n[gen]\nshares = [0.5]\n[gen.vae]\nepochs = 2'
    )
    got = configured(file, hidden=8, prototypes=(3,))
    assert (got.hidden, got.alphas, got.patience, got.batch_size) == (8, (0.3,), 10, 32)
    assert (got.gen.shares, got.gen.prototypes, got.gen.linking) == ((0.5,), (3,), "global")
    assert (got.gen.vae.epochs, got.gen.vae.hidden) == (2, 64)
    plain = configured(file, "plain")
    assert (plain.hidden, plain.patience, plain.gen.linking) == (16, None, "node")


def test_an_option_takes_the_place_of_the_files_other_way(tmp_path):
    file = tmp_path / "private.toml"
    file.write_text("epsilon = 2")
    assert configured(file).epsilon == 2
    assert configured(file, noise=1.5).privacy == Config(noise=1.5).privacy
    assert configured(file, epsilon=3.0).epsilon == 3
    with pytest.raises(UsageError, match="both set"):
        configured(file, epsilon=3.0, noise=1.5)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("hiden = 3", "there is no setting called 'hiden'; did you mean hidden?"),
        ("zzz = 3", "there is no setting called 'zzz'."),
        ("[gen]\nshare = [0.1]", "there is no setting called 'gen.share'; did you mean gen.share"),
        ("[gen.vae]\nzzz = 1", "there is no setting called 'gen.vae.zzz'."),
        ('hidden = "big"', "hidden is 'big'; it must be a whole number of 1 or more."),
        ("hidden = 2.5", "hidden is 2.5; it must be a whole number of 1 or more."),
        ("hidden = true", "hidden is True; it must be a whole number of 1 or more."),
        ("hidden = 0", "hidden is 0; it must be a whole number of 1 or more."),
        ("lr = nan", "lr is nan; it must be a positive number."),
        ("empty_sets = 1", "empty_sets is 1; it must be true or false."),
        ("patience = 2000-01-01", "patience is datetime.date(2000, 1, 1); it must be a whole"),
        ("alphas = [0.1, 'a']", "alphas has 'a'; every alpha must lie strictly between 0 and 1."),
        ("methods = [['fed']]", "methods has ['fed']; it must be a word."),
        ("methods = ['fad']", "methods has 'fad'; it must be one of loc, fed, "),
        ("gen = 3", "gen is 3; it must be a table of settings."),
        ("model = { a = 1 }", "model is {'a': 1}; it must be one of gcn, sage."),
        ("[gen]\nlink_lr = 'x'", "gen.link_lr is 'x'; it must be a positive number."),
        ("[gen]\nlink_lr = 0", "gen.link_lr is 0; it must be a positive number."),
        ("preset = 'best'", "preset is 'best'; it must be one of default, plain, paper."),
        ("preset = ['a']", "preset is ['a']; it must be one of default, plain, paper."),
        ("hidden = ", "not a TOML file: Invalid value"),
        ("a" + ".a" * 3000 + " = [" * 3000, "not a TOML file: "),
    ],
)
def test_what_is_wrong_is_one_sentence_with_the_file(tmp_path, text, sentence):
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(DataError) as refusal:
        configured(file, seeds=2)
    assert str(refusal.value).startswith(f"{file}: {sentence}")


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match=r"none\.toml: No such file"):
        read_settings(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"model = '\xff'")
    with pytest.raises(DataError, match="not a TOML file"):
        read_settings(tmp_path / "latin.toml")


def test_options_alone_are_refused_without_the_files_name(tmp_path):
    file = tmp_path / "good.toml"
    file.write_text("hidden = 8")
    with pytest.raises(UsageError, match=r"^rounds is 0; it must be"):
        configured(file, rounds=0)
    with pytest.raises(UsageError, match=r"^preset is 'best'"):
        configured(None, "best")
