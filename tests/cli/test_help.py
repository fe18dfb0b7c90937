"""Help that ends with examples, examples that parse, completion, and extras that are missing."""

import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import click
import pytest
import typer

from fedcover import __version__, cli
from fedcover.config import Config
from fedcover.config.names import CALIBRATIONS, MODELS, PARTITIONS
from fedcover.config.schema import options
from fedcover.config.settings import PRESETS, network_settings
from fedcover.errors import EXTRAS, UsageError, require
from fedcover.graphs.features import Missing

ROOT = Path(__file__).parents[2]


def commands(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The words that call each command and each group of commands."""
    for name, command in group.commands.items():
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


APP = typer.main.get_command(cli.app)
assert isinstance(APP, click.Group)
COMMANDS = list(commands(APP, ()))


def command_of(words: tuple[str, ...]) -> click.Command:
    found: click.Command = APP
    for word in words:
        assert isinstance(found, click.Group)
        found = found.commands[word]
    return found


def parameters(command: click.Command) -> list[click.Parameter]:
    return command.get_params(click.Context(command))


def example_lines(command: click.Command) -> list[str]:
    heading, *lines = (command.epilog or "").split("\n\n")
    assert heading == "Examples:", command.name
    assert lines, command.name
    return lines


def leaf(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that a line calls, and its arguments."""
    found: click.Command = APP
    while words and isinstance(found, click.Group) and words[0] in found.commands:
        found, words = found.commands[words[0]], words[1:]
    return found, words


def parses(line: str) -> None:
    program, *words = shlex.split(line)
    assert program == "fedcover"
    command, arguments = leaf(words)
    command.make_context(command.name, arguments)  # parses and converts, runs nothing


def test_the_commands_are_found():
    assert {("run",), ("inspect",), ("data",), ("data", "list"), ("site", "run")} <= set(COMMANDS)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_example_parses_and_calls_the_command_that_shows_it(words):
    for line in example_lines(command_of(words)):
        parses(line)
        assert shlex.split(line)[1 : 1 + len(words)] == list(words)


def test_the_programs_own_examples_parse():
    *calls, completion = example_lines(APP)
    for line in calls:
        parses(line)
    # Parsing an eager option would obey it, so its name is looked up instead.
    assert completion.split()[1] in {name for p in APP.params for name in p.opts}


@pytest.mark.parametrize(
    "line",
    ["fedcover run cora --client 10", "fedcover inspect", "fedcover data cuts --seeds two"],
)
def test_an_example_that_has_rotted_is_caught(line):
    with pytest.raises(click.UsageError):
        parses(line)


@pytest.mark.parametrize("words", [(), *COMMANDS], ids=" ".join)
def test_help_ends_with_the_examples(words, monkeypatch, calling):
    monkeypatch.setenv("COLUMNS", "100")
    status, out, err = calling(*words, "--help")
    assert (status, err) == (0, "")
    shown = " ".join(out.split())
    assert shown.endswith(" ".join(["Examples:", *example_lines(command_of(words))]))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_argument_and_option_says_what_it_is(words, monkeypatch, calling):
    monkeypatch.setenv("COLUMNS", "200")
    shown = " ".join(calling(*words, "--help")[1].replace("│", " ").split())
    for parameter in parameters(command_of(words)):
        meaning = getattr(parameter, "help", None)
        assert meaning, f"{' '.join(words)} {parameter.name}"
        hidden = getattr(parameter, "hidden", False)
        assert hidden or " ".join(meaning.split()[:4]) in shown


def test_the_version_is_that_of_the_project(calling):
    assert calling("--version") == (0, f"fedcover {__version__}\n", "")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__


def complete(shell: str, words: str) -> list[str]:
    """The lines that a shell is given after these words."""
    variables = {
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_FEDCOVER_COMPLETE": f"complete_{shell}",
    }
    done = subprocess.run(
        [sys.executable, "-m", "fedcover"],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_a_shell_completes_commands_and_options():
    assert complete("bash", "fedcover ins") == ["inspect"]
    assert "--clients" in complete("bash", "fedcover run cora --cl")
    assert complete("zsh", "fedcover ins")[0].startswith('_arguments \'*: :(("inspect":')


def test_every_setting_is_an_option_with_its_default_in_one_panel_or_hidden(monkeypatch, calling):
    monkeypatch.setenv("COLUMNS", "160")
    by_name = {parameter.name: parameter for parameter in parameters(command_of(("run",)))}
    shown = calling("run", "--help")[1]
    for name, one in options(Config).items():
        flag = f"--{name}".replace("_", "-")
        assert flag in by_name[name].opts
        assert (flag in shown) == (not one.rare)
        if one.spelt_default and one.kind is not bool:
            assert f"(default: {one.spelt_default})." in by_name[name].help
        assert by_name[name].rich_help_panel == one.panel
    for panel in ("Federation", "Sets and promises", "Training", "Privacy", "Gen", "Personal"):
        assert f"─ {panel} " in shown


def test_every_setting_of_a_job_is_an_option_of_a_trial():
    names = {parameter.name for parameter in parameters(command_of(("federation", "try")))}
    assert set(network_settings()) - {"sites"} <= names
    assert "seeds" in names
    assert not names & {"partition", "resplits"}  # of a simulation


def test_help_does_not_wait_for_the_schema():
    code = "import sys, fedcover.cli; print([m for m in sys.modules if m.startswith('fedcover.c')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "fedcover.config" not in done.stdout


@pytest.mark.parametrize(
    ("option", "known"),
    [
        ("preset", PRESETS),
        ("partition", PARTITIONS),
        ("model", MODELS),
        ("calibrate", CALIBRATIONS),
        ("missing", get_args(Missing)),
    ],
)
def test_a_shell_is_offered_what_an_option_may_be(option, known):
    command = command_of(("run",))
    (parameter,) = (p for p in parameters(command) if f"--{option}" in p.opts)
    for begun in ("", min(known)[:3]):
        offered = {item.value for item in parameter.shell_complete(click.Context(command), begun)}
        assert offered == {name for name in known if name.startswith(begun)}


def test_fish_is_given_one_line_for_each_option_however_long_its_help():
    (line,) = complete("fish", "fedcover run cora --calib")
    assert line.startswith("--calibrate\t")
    assert line.endswith("pooled, client, class, group (default: pooled).")


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_is_given_a_script_that_names_fedcover():
    # Two commands, so that bash does not hand its process over: the shell is found by its name.
    line = f"{shlex.quote(sys.executable)} -m fedcover --show-completion bash; exit $?"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "_FEDCOVER_COMPLETE=complete_bash" in done.stdout
    assert done.stdout.rstrip().endswith("fedcover")


MISSING = [
    ("flower", ["site", "run", "here", "--insecure"], "fedcover site run needs Flower"),
    ("flower", ["federation", "keys", "k", "--hosts", "a"], "fedcover federation keys needs"),
    ("flower", ["federation", "try", "cora"], "fedcover federation try needs Flower"),
    ("flower", ["federation", "app"], "fedcover federation app needs Flower"),
    (
        "privacy",
        ["run", "cora", "--methods", "gen", "--epsilon", "2", "-q"],
        "Differential privacy",
    ),
    ("report", ["paper", "clients", "--graphs", "cora"], "A figure needs matplotlib"),
]


@pytest.mark.parametrize(("extra", "arguments", "sentence"), MISSING)
def test_a_missing_extra_is_named_in_one_sentence(
    extra, arguments, sentence, monkeypatch, calling, tmp_path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, EXTRAS[extra][0], None)
    status, out, err = calling(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith(f"fedcover: {sentence}")
    assert err.endswith(f"which is not installed: pip install 'fedcover[{extra}]'.\n")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_extras_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS) <= set(project["optional-dependencies"])


def test_an_extra_that_is_there_is_not_asked_for(monkeypatch):
    monkeypatch.setitem(EXTRAS, "flower", ("json", "Json"))
    require("flower", "This")
    monkeypatch.setitem(EXTRAS, "flower", ("no_such_module", "Nothing"))
    with pytest.raises(UsageError, match=r"This needs Nothing.*fedcover\[flower\]"):
        require("flower", "This")
