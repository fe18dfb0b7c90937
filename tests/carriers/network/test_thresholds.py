"""Thresholds that cannot be, and thresholds that do not suit a site."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedcover.carriers.network.coordinate import coordinate
from fedcover.carriers.network.coordinator import Coordinator
from fedcover.carriers.network.job import Assignment
from fedcover.carriers.network.member import InProcess
from fedcover.carriers.network.messages import Item, Order, Reply
from fedcover.conformal.order import order_key

from .conftest import members, only
from .test_faults import Change, Troubled, phase_of

NAN = bytes([0xFF, 0xC0, 0, 0])  # in the order of scores it comes after infinity


def key_of(score: float) -> bytes:
    return int(order_key(np.array([score]))[0]).to_bytes(4, "big")


def counting(key: bytes, calibration: int) -> Change:
    """Ada says that all its scores are this one, consistently from byte to byte."""

    def change(name: str, order: Order, reply: Reply) -> Reply:
        if name != "ada" or not phase_of(order).endswith("quantile"):
            return reply
        contents = []
        for item, content in zip(order.items, reply.contents, strict=True):
            depth, prefix = int(item.arrays["depth"][0]), int(item.arrays["prefix"][0])
            counts = np.zeros(256, dtype=np.int64)
            if prefix == int.from_bytes(key[:depth], "big"):
                counts[key[depth]] = calibration
            contents.append(dict(content) | {"counts": counts})
        return replace(reply, contents=tuple(contents))

    return change


@pytest.fixture
def lied_to(sites: Path, assignment: Callable[..., Assignment]) -> Callable[[bytes], Coordinator]:
    def lead(key: bytes) -> Coordinator:
        wanted = assignment(methods=("fed",), alphas=(0.1,), rounds=2, least=2)
        honest = Coordinator(wanted.job, wanted.schema, InProcess(members(sites)))
        honest.run()
        count = honest.census.of("calib")[honest.sites.index("ada")]
        leader = Coordinator(wanted.job, wanted.schema, Troubled(sites, counting(key, count)))
        (threshold,) = only(leader.run())["fed"].calibrated.thresholds
        assert np.isfinite(threshold.pooled.q_hat)
        return leader

    return lead


@pytest.mark.parametrize("key", [NAN, key_of(np.inf)])
def test_scores_that_are_not_finite_are_refused_by_name(
    key: bytes, lied_to: Callable[[bytes], Coordinator]
) -> None:
    """So no threshold can come of them; the job goes on with those who count honestly."""
    (refusal,) = lied_to(key).record.refused
    why = "was refused: it counts scores that are not finite numbers"
    assert (refusal.site, refusal.why) == ("ada", why)


@pytest.mark.parametrize("score", [np.finfo(np.float32).max, np.finfo(np.float32).min, -np.inf])
def test_what_can_be_is_not_refused(score: float, lied_to: Callable[[bytes], Coordinator]) -> None:
    """Below the threshold nobody asks for the last bytes, which would tell -inf from a number."""
    assert not lied_to(key_of(score)).record.refused


def test_a_site_says_that_a_threshold_does_not_fit_its_own_nodes(
    sites: Path, assignment: Callable[..., Assignment], caplog: pytest.LogCaptureFixture
) -> None:
    class Lowering(InProcess):
        """What a coordinator might do, or a threshold that liars have moved."""

        def exchange(
            self, orders: Mapping[str, Order], seconds: float
        ) -> Iterator[tuple[str, Reply]]:
            for name, order in orders.items():
                items = [
                    Item(one.place, {"q_hat": 0 * one.arrays["q_hat"] - 1})
                    if one.place.verb == "sets" else one for one in order.items
                ]  # fmt: skip
                yield from super().exchange({name: replace(order, items=tuple(items))}, seconds)

    settings = {"methods": ("fed",), "alphas": (0.1,), "rounds": 2}
    coordinate(assignment(**settings), InProcess(members(sites)))
    assert "does not suit this site" not in caplog.text
    wanted = assignment(**settings)
    coordinate(replace(wanted, out=wanted.out.with_name("lowered")), Lowering(members(sites)))
    assert caplog.text.count("fed, lac, exact: sets at level 0.9 cover 0 of this site's own") == 3
