"""A job's settings as Flower hands them over: what is read, what is refused, what the app lists."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from fedcover.carriers.network.flower import APP
from fedcover.carriers.network.flower.apps import _member
from fedcover.carriers.network.flower.local import _spelt
from fedcover.carriers.network.job import OWN, job_from
from fedcover.carriers.network.site_job import MIN_FAR_ENDS
from fedcover.config import Config
from fedcover.config.schema import options
from fedcover.config.settings import network_settings
from fedcover.errors import UsageError

DEFAULT = Config(methods="gen", seeds=1, max_share=0.5, partition="given")


def listed() -> dict[str, object]:
    app = tomllib.loads((APP / "pyproject.toml").read_text(encoding="utf-8"))
    found: dict[str, object] = app["tool"]["flwr"]["app"]["config"]
    return found


def test_the_app_lists_every_setting_that_a_network_has() -> None:
    assert set(listed()) == {name.replace("_", "-") for name in (*network_settings(), *OWN)}
    simulated = {name for name, one in options(Config).items() if one.simulated}
    links = {"cut_edges", "known_share", "matching"}
    assert simulated == {"clients", "partition", "beta", "resplits", "central_decay", *links}


def test_what_the_app_lists_is_the_default() -> None:
    assert job_from(listed()) == job_from({})
    assert job_from({}).config == DEFAULT


@pytest.mark.parametrize("spelt", [True, False])
def test_every_setting_reaches_the_job(spelt: bool) -> None:
    other = {
        "model": "sage", "scores": ("aps", "lac"), "alphas": (0.3,), "dropout": 0.25,
        "first_seed": 7, "patience": 4, "temperature": "none", "empty_sets": False, "train": 0.5,
        "unit_features": True, "shares": (0.5, 0.25), "link_weight": 0.75, "vae_lr": 0.25,
        "vae_binary": True, "neighgen_rounds": 3, "prox": 2.0, "shrinkage": float("inf"),
        "sites": 5, "least": 4, "timeout": 9.5, "average": "median",
    }  # fmt: skip
    given = {name.replace("_", "-"): value for name, value in other.items()}
    if spelt:  # as TOML on the way through Flower's command line
        text = "\n".join(f"{key} = {_spelt(value)}" for key, value in given.items())
        given = tomllib.loads(text)
    job = job_from(given)
    reached = {name: one for name, one in other.items() if name in options(Config)}
    assert job.config == Config.preset(
        "default", methods="gen", seeds=1, max_share=0.5, partition="given", **reached
    )
    assert (job.sites, job.least, job.timeout, job.average) == (5, 4, 9.5, "median")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"runds": 3}, "there is no setting called 'runds'; did you mean rounds?"),
        ({"clients": 3}, "there is no setting called 'clients'; did you mean client-shares?"),
        ({"rounds": 0}, "rounds is 0; it must be a whole number of 1 or more."),
        ({"rounds": "few"}, "rounds is 'few'; it must be a whole number of 1 or more."),
        ({"alphas": "0.1,a"}, "alphas has 'a'; every alpha must lie strictly between 0 and 1."),
        ({"alphas": 1.5}, "alphas has 1.5; every alpha must lie strictly between 0 and 1."),
        ({"vae-lr": 0}, "gen.vae.lr is 0; it must be a positive number."),
        ({"empty-sets": "no"}, "empty_sets is 'no'; it must be true or false."),
        ({"preset": "best"}, "preset is 'best'; it must be one of default, plain, paper."),
        ({"sites": 0}, "sites is 0; it must be a whole number of 1 or more."),
        ({"least": 9}, "least is 9, but the federation begins with 3 sites."),
        ({"timeout": "soon"}, "timeout is 'soon'; it must be a positive number."),
        ({"average": "best"}, "average is 'best'; it must be one of mean, trimmed, median."),
        ({"methods": "central"}, "methods has 'central', which only a simulation has"),
        ({"calibrate": "group"}, "calibrate 'group' and group, the column that names it"),
    ],
)
def test_what_is_wrong_is_the_sentence_of_the_schema(given: dict, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        job_from(given)
    assert str(refused.value).startswith(sentence)


def test_a_site_s_own_floor_for_far_ends_reaches_it(tmp_path: Path) -> None:
    assert _member(str(tmp_path), "", "", "")._least_far_ends == MIN_FAR_ENDS == 3
    assert _member(str(tmp_path), "", "ada", "2")._least_far_ends == 2


@pytest.mark.parametrize("least", ["0", "-1", "two", "2.5"])
def test_a_floor_that_is_none_is_refused(least: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"the least-far-ends {least}; it must be a whole number"):
        _member(str(tmp_path), "", "", least)
