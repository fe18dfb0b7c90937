from fedcover.report.verdict import grid_cards, recommended, run_cards


def statuses(cells):
    from fedcover.report.summary import status

    return [cell | {"status": status(cell)} for cell in cells]


def test_the_smallest_sets_that_keep_the_promise_are_taken_and_marks_are_not(make_cell):
    cells = statuses(
        [
            make_cell("fed", size=2.0),
            make_cell("fed+mix", size=1.5),
            make_cell("loc", coverage=0.85, size=1.2),  # small because it breaks the promise
            make_cell("central", size=1.0),
        ]
    )
    assert recommended(cells)["method"] == "fed+mix"
    take, held, worst = run_cards(cells, cells)
    assert take["answer"] == "fed+mix"
    assert "1.50 labels" in take["text"]
    assert "90.3% of the nodes asked about, on average; at least 90% was promised" in take["text"]
    assert "2.5% of the sets are empty" in take["text"]
    assert "25% smaller than plain FedAvg (fed, 2.00)" in take["text"]
    assert held["answer"] == "No"
    assert "loc covers 0.850 where it was calibrated" in held["text"]
    assert "gives 0.887 or more in 39 of 40 cases" in held["text"]
    assert "3 of 4 methods" in held["text"]
    assert worst["answer"] == "Client 3 of seed 1"
    assert "coverage is 0.810, 0.090 below the target of 0.9, over 40 test nodes" in worst["text"]
    # Clopper and Pearson for 32 of 40 with a level of 1 - 0.05/10, and 15 of 21 with 1 - 0.05/3.
    assert "(95% interval for the worst of 10: 0.58 to 0.94)" in worst["text"]
    b = "The worst class is b: 0.720, over 21 test nodes (95% interval for the worst of 3: 0.43 to"
    assert b in worst["text"]


def test_a_kept_promise_is_a_yes_with_its_band(make_cell):
    cells = statuses([make_cell("fed")])
    take, held, _ = run_cards(cells, cells * 3)
    assert take["text"].endswith("No other method here has smaller sets.")
    assert (held["answer"], held["tone"]) == ("Yes", "good")
    assert "between 0.900 and 0.905" in held["text"]
    assert "On the 2 splits that were calibrated: fed 0.903" in held["text"]
    assert "by chance alone, 0.887 to 0.919 in 95 of 100 cases." in held["text"]
    assert "3 of 3 cells" in held["text"]


def test_coverage_above_the_band_breaks_no_promise(make_cell):
    cells = statuses([make_cell("fed", coverage=0.95)])
    take, held, _ = run_cards(cells, cells)
    assert take["answer"] == "fed"
    assert held["answer"] == "Yes, with room"


def test_the_calibrated_split_decides_where_resplits_are_in_the_band(make_cell):
    cells = statuses([make_cell("fed", coverage=0.903, coverage_split=0.83)])
    take, held, _ = run_cards(cells, cells)
    assert (take["answer"], held["answer"]) == ("None of these", "No")
    assert "1 of 1 methods lie where the theorem puts them" in held["text"]  # the arithmetic


def test_test_nodes_unlike_calibration_nodes_are_a_no_that_names_the_client(make_cell):
    cells = statuses([make_cell("fed", p_value=0.03, party="north", party_p_value=0.001)])
    held = run_cards(cells, cells)[1]
    assert held["answer"] == "No"
    assert "most of all at client north (p = 0.001)" in held["text"]
    almost = statuses([make_cell("fed", p_value=0.03, party="north", party_p_value=0.003)])
    assert run_cards(almost, almost)[1]["answer"] == "Yes"


def test_resplits_below_the_band_are_a_no_unless_the_split_was_given(make_cell):
    low = {"coverage": 0.89, "coverage_split": 0.9}
    drawn, given = (statuses([make_cell("fed", given=given, **low)]) for given in (False, True))
    assert "Below the target over re-splits: fed (0.890)" in run_cards(drawn, drawn)[1]["text"]
    take, held, _ = run_cards(given, given)
    assert held["answer"] == "Yes"
    assert "On the split that you gave: fed 0.900" in held["text"]
    assert "All seeds share it, so it counts as one." in held["text"]
    assert "Re-splits say nothing" in held["text"]
    assert "90.0% of the nodes asked about" in take["text"]


def test_a_rule_without_guarantee_is_never_recommended(make_cell):
    cells = statuses(
        [make_cell("fed", coverage=0.8, quantile="average", low=None, high=None, below=True)]
    )
    take, held, _ = run_cards(cells, cells)
    assert take["answer"] == "None with this rule"
    assert take["tone"] == held["tone"] == "bad"
    assert held["answer"] == "There is none"
    assert "1 of 1 methods missed the target of 0.9" in held["text"]


def test_a_promise_to_others_than_the_nodes_asked_about_is_not_judged(make_cell):
    cells = statuses([make_cell("fed", quantile="theorem1", low=None, high=None)])
    held = run_cards(cells, cells)[1]
    assert (held["answer"], held["tone"]) == ("There is none", "bad")
    assert held["text"].startswith("The rule theorem1 promises for clients counted by their calib")
    exact = statuses([make_cell("fed", low=None, high=None)])
    held = run_cards(exact, exact, {"config": {"calibrate": "class"}})[1]
    assert held["text"].startswith("By class, exact promises for clients counted by their calib")


def test_marks_alone_leave_nothing_to_take(make_cell):
    cells = statuses([make_cell("central")])
    assert run_cards(cells, cells)[0]["answer"] == "None of these"


def test_a_worst_client_above_its_target_is_said_to_be(make_cell):
    worst = {"group": "x", "seed": None, "n_test": 7.0, "coverage": 0.93, "among": 3}
    cells = statuses([make_cell("fed", worst=worst)])
    card = run_cards(cells, cells)[2]
    assert card["answer"] == "Client x"
    assert "still at or above the target of 0.9, over 7 test nodes (95% interval" in card["text"]


def test_a_grid_counts_its_settings_and_cells(make_cell):
    low = {"group": "7", "seed": 0, "n_test": 9.0, "coverage": 0.5, "among": 40}
    cells = statuses(
        [
            make_cell("fed", size=2.0),
            make_cell("fed+mix", size=1.5),
            make_cell("fed", size=1.0, clients=20, worst=low),
            make_cell("fed+mix", size=1.5, clients=20, coverage=0.8),
            make_cell("fed", size=1.0, dataset="alone"),
        ]
    )
    smallest, held, worst = grid_cards(cells)
    assert smallest["text"].startswith("It has the smallest sets that keep the promise in 1 of 2")
    assert held["answer"] == "In 4 of 5 cells"
    assert held["tone"] == "bad"
    assert worst["answer"] == "Client 7 on cora"
    assert "K = 20, seed 0, fed, lac: coverage 0.500 for a target of 0.9" in worst["text"]
