"""Which M and p are chosen, and when no generated neighbour is."""

from math import inf, nan

import numpy as np
import pytest

from fedcover.algorithm.fedavg import Trained
from fedcover.algorithm.gen import choose_cell
from fedcover.algorithm.requests import Census, Parallel, Tell
from fedcover.config import Config, recipe_of
from fedcover.plans import NO_NEIGHBOURS, cell_of, cell_part, count_links

GEN = recipe_of("gen")
NODES = {0: 10, 1: 20}
# Whose the prototypes are, by M: party 0 gets two of M = 2, and party 1 one; of M = 4 four each.
SENT = {"owner.2": np.array([0, 1, 1]), "owner.4": np.repeat([0, 1], 4)}


def chosen(losses, sent=SENT, **gen):
    """The choice if the cells' trainings, in the order that they are asked for, have these losses;
    and the parts that were trained."""
    census = Census({party: {"nodes": nodes} for party, nodes in NODES.items()})
    talk = choose_cell(GEN, Config(methods=("gen",), gen=gen), 3, census, sent)
    request, parts = next(talk), []
    if isinstance(request, Parallel):
        parts = list(request.talks)
        request = talk.send({part: Trained((losses[part],), 0, 1) for part in parts})
    assert isinstance(request, Tell)
    with pytest.raises(StopIteration) as stop:
        next(talk)
    found = stop.value.value
    np.testing.assert_array_equal(request.arrays["cell"], [found["prototypes"], found["share"]])
    assert request.arrays["cell"].dtype == np.float64  # whichever it is
    return found, parts


@pytest.mark.parametrize("shares", [(0, 0.5, 1.0), (0.5, 0, 1.0)])
def test_without_neighbours_is_one_cell_wherever_its_share_stands(shares):
    losses = {"gen/cell none": 0.25, "gen/cell 2 0.5": 0.5, "gen/cell 2 1.0": 0.5}
    losses |= {"gen/cell 4 0.5": 0.75, "gen/cell 4 1.0": 1.0}
    found, parts = chosen(losses, prototypes=(2, 4), shares=shares)
    assert sorted(parts) == sorted(losses)
    assert (found["prototypes"], found["share"]) == NO_NEIGHBOURS
    none, *linked = found["grid"]
    assert none == {"cell": "none", "prototypes": 0, "share": 0.0, "valid_loss": 0.25}
    assert [(c["prototypes"], c["share"]) for c in linked] == [(2, 0.5), (2, 1), (4, 0.5), (4, 1)]
    assert all(cell.keys() == {"prototypes", "share", "valid_loss"} for cell in linked)


def test_a_smaller_loss_takes_neighbours():
    losses = {"gen/cell none": 0.5, "gen/cell 4 0.5": 0.25}
    found, _ = chosen(losses, prototypes=(4,), shares=(0, 0.5))
    assert (found["prototypes"], found["share"]) == (4, 0.5)


@pytest.mark.parametrize("loss", [nan, inf])
def test_with_nothing_to_judge_by_neighbours_that_were_asked_for_are_kept(loss):
    """Without validation nodes every loss is NaN."""
    losses = dict.fromkeys(["gen/cell none", "gen/cell 2 0.5", "gen/cell 4 0.5"], loss)
    found, _ = chosen(losses, prototypes=(2, 4), shares=(0, 0.5))
    assert (found["prototypes"], found["share"]) == (2, 0.5)
    assert [cell["valid_loss"] for cell in found["grid"]] == [None] * 3


def test_without_the_share_0_there_is_no_such_cell():
    found, parts = chosen({"gen/cell 2 0.5": 1, "gen/cell 4 0.5": 2}, prototypes=(2, 4), shares=0.5)
    assert parts == ["gen/cell 2 0.5", "gen/cell 4 0.5"]
    assert not any("cell" in cell for cell in found["grid"])
    assert 0 not in Config.preset("paper").gen.shares
    assert Config().gen.shares == (0, *Config.preset("paper").gen.shares)


def test_no_neighbours_alone_need_no_choice():
    found, parts = chosen({}, prototypes=(2, 4), shares=0)
    assert (found, parts) == ({"prototypes": 0, "share": 0.0}, [])


def test_shares_too_small_for_one_link_are_the_same_cell():
    """Of all pairs: party 0 has 10 · 4, party 1 has 20 · 4."""
    losses = {"gen/cell none": 0.25, "gen/cell 4 0.5": 0.5}
    found, parts = chosen(losses, prototypes=(4,), shares=(0, 0.001, 0.5), linking="global")
    assert sorted(parts) == sorted(losses)
    assert [cell["valid_loss"] for cell in found["grid"]] == [0.25, 0.25, 0.5]
    assert found["share"] == 0


def test_where_nobody_sends_prototypes_every_cell_is_the_same():
    silent = {name: np.empty(0, dtype=np.int64) for name in SENT}
    found, parts = chosen({}, silent, prototypes=(2, 4), shares=(0, 0.5))
    assert (found, parts) == ({"prototypes": 0, "share": 0.0}, [])
    found, parts = chosen({}, silent, prototypes=(2, 4), shares=(0.1, 0.5))
    assert (found, parts) == ({"prototypes": 2, "share": 0.1}, [])


@pytest.mark.parametrize("cell", [NO_NEIGHBOURS, (2, 0.01), (20, 1.0)])
def test_a_cells_part_is_read_back(cell):
    part = cell_part(GEN, *cell)
    assert cell_of(part.removeprefix("gen/")) == cell
    assert part.endswith("cell none") == (cell == NO_NEIGHBOURS)
    assert cell_of("cell") is None  # what the parties are told of the choice
    assert cell_of("shared") is None


@pytest.mark.parametrize("rule", ["node", "global"])
def test_a_share_of_0_makes_no_link_and_any_other_one_at_each_node(rule):
    assert count_links(rule, 30, 20, 0.0) == 0
    assert count_links(rule, 30, 0, 0.5) == 0
    assert count_links(rule, 30, 20, 0.001) == 1
