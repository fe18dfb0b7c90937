"""One declaration of every setting: its names, its help, and the tables that it chooses from."""

import ast
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args

import pytest

import fedcover.config
from fedcover.carriers.messages import AVERAGES
from fedcover.config import Config, NetworkSettings, Privacy, names
from fedcover.config.schema import Settings, declared, flattened, nested, options
from fedcover.conformal import GRAPH_SCORES, RULES, SCORES, TEMPERATURES
from fedcover.conformal.mondrian import GROUP_RULES
from fedcover.graphs.features import Missing
from fedcover.graphs.partition import METHODS as PARTITIONS
from fedcover.party.augment import RULES as LINKINGS


def groups(kind: type[Settings]) -> list[type[Settings]]:
    inner = [one.kind for one in declared(kind).values() if one.is_table]
    return [kind, *(group for one in inner for group in groups(one))]


@pytest.mark.parametrize(
    ("words", "table"),
    [
        (names.SCORES, SCORES | GRAPH_SCORES),
        (names.QUANTILES, RULES),
        (names.GROUP_QUANTILES, GROUP_RULES),
        (names.PARTITIONS, PARTITIONS),
        (names.TEMPERATURES, (*TEMPERATURES, "none")),
        (names.LINKINGS, LINKINGS),
        (names.AVERAGES, ("mean", *AVERAGES)),
        (names.MISSING, get_args(Missing)),
    ],
)
def test_the_words_to_choose_from_are_those_of_what_they_name(words, table):
    assert words == tuple(table)


@pytest.mark.parametrize("kind", [*groups(Config), NetworkSettings, Privacy])
def test_every_setting_says_what_it_is_and_has_a_default_that_passes(kind):
    for name, one in declared(kind).items():
        if one.is_table:
            continue
        assert one.meaning.endswith("."), name
        assert one.checked(one.default) == one.default, name
        assert one.kind in (int, float, str, bool), name


def test_a_setting_has_one_name_outside_of_its_table():
    paths = [one.path for one in options(Config).values()]
    leaves = [
        entry.name
        for group in groups(Config)
        for entry in fields(group)
        if not is_dataclass(declared(group)[entry.name].kind)
    ]
    assert len(set(paths)) == len(paths) == len(leaves)
    assert not set(options(Config)) & set(options(NetworkSettings))
    assert options(Config)["shares"].path == ("gen", "shares")
    assert options(Config)["vae_lr"].path == ("gen", "vae", "lr")
    assert options(Config)["neighgen_lr"].path == ("neighgen", "lr")


def test_tables_and_names_are_two_spellings_of_the_same():
    config = Config(lr=0.5, gen={"shares": 0.5, "vae": {"lr": 0.25}})
    flat = flattened(Config, config)
    assert set(flat) == set(options(Config))
    assert (flat["lr"], flat["shares"], flat["vae_lr"]) == (0.5, (0.5,), 0.25)
    assert Config(**nested(Config, flat)) == config


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("rounds", "7", 7),
        ("rounds", "7.5", "7.5"),
        ("lr", "1e-3", 0.001),
        ("epsilon", "inf", float("inf")),
        ("alphas", "0.1, 0.2", (0.1, 0.2)),
        ("alphas", "0.1,,a", (0.1, "", "a")),
        ("methods", "fed,loc", ("fed", "loc")),
        ("empty_sets", "false", False),
        ("empty_sets", "no", "no"),
        ("rounds", 7, 7),
    ],
)
def test_a_text_is_read_as_what_it_spells(name, text, value):
    assert options(Config)[name].read(text) == value


def test_a_wrong_value_in_a_table_is_named_with_it():
    from fedcover import UsageError

    with pytest.raises(UsageError, match=r"^gen\.vae\.lr is 0; it must be a positive number\.$"):
        Config(gen={"vae": {"lr": 0}})
    with pytest.raises(UsageError, match=r"^there is no setting called 'gen\.vae\.zzz'\.$"):
        Config(gen={"vae": {"zzz": 0}})
    with pytest.raises(UsageError, match=r"^gen is 3; it must be a table of settings\.$"):
        Config(gen=3)


def test_the_schema_imports_nothing_that_is_slow_and_nothing_above_it():
    folder = Path(fedcover.config.__file__).parent
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedcover"):
                assert node.module.startswith(("fedcover.config", "fedcover.errors")), file
    code = "import sys, fedcover.config; print({'numpy', 'torch', 'typer'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
