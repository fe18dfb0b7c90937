from dataclasses import replace

from fedcover.paper import grid
from fedcover.paper.definition import read_all


def test_a_model_is_trained_once_and_judged_by_all_that_is_asked(known):
    cells = grid.cells(known.values(), "paper")
    assert {(c.config.clients, c.method) for c in cells} == {
        (k, m) for k in (2, 3) for m in ("loc", "fed")
    }
    (shared,) = [c for c in cells if c.method == "fed" and c.config.clients == 3]
    assert shared.config.scores == ("aps-det", "lac")
    assert shared.config.quantiles == ("average", "tdigest")
    assert shared.config.alphas == (0.1, 0.2, 0.5)
    (alone,) = [c for c in cells if c.method == "fed" and c.config.clients == 2]
    assert alone.config.scores == ("aps-det",)


def test_a_target_shows_its_own_cells_of_the_grid(known):
    cells = grid.cells(known.values(), "paper")
    own = grid.of(known["coverage"], "paper", cells)
    assert [(c.config.clients, c.method) for c in own] == [(3, "fed")]
    assert own[0].config.alphas == (0.1, 0.2, 0.5)


def test_the_order_of_definitions_changes_no_key(known):
    one = {cell.key for cell in grid.cells(known.values(), "default")}
    other = {cell.key for cell in grid.cells(reversed(known.values()), "default")}
    assert one == other


def test_keys_tell_configurations_apart(known):
    cells = [c for preset in ("default", "paper") for c in grid.cells(known.values(), preset)]
    assert len({cell.key for cell in cells}) == len(cells)
    cell = cells[0]
    assert replace(cell, config=replace(cell.config, rounds=3)).key != cell.key


def test_seeds_come_in_blocks(known):
    ten = replace(known["coverage"], seeds=12)
    blocks = [c.config.seed_range for c in grid.cells([ten], "default")]
    assert sorted(map(list, blocks)) == [[*range(5)], [*range(5, 10)], [10, 11]]


def test_variants_are_for_their_methods_alone():
    privacy = read_all()["privacy"]
    cells = grid.cells([privacy], "default")
    assert sorted((c.method, c.variant) for c in cells) == [
        ("fed", ""), ("gen", ""),
        ("gen", "ε = 1"), ("gen", "ε = 10"), ("gen", "ε = 25"), ("gen", "ε = 5"),
    ]  # fmt: skip
    assert {c.variant: c.config.epsilon for c in cells}["ε = 5"] == 5.0
