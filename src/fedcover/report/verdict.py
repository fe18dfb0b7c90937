"""What a newcomer wants to know first: which method, did the guarantee hold, who is worst off.

Each answer is a card: a question, the answer in large type, and one or two plain sentences.
"""

from collections import Counter
from collections.abc import Sequence

from fedcover.conformal import RULES, coverage_interval
from fedcover.report.cells import Cell, views
from fedcover.report.summary import Info, is_rejected, promised, resplit_status, split_below
from fedcover.tables import SPLIT

Card = dict[str, str]
Answer = tuple[str, str, str]  # in large type, in sentences, and its tone: good, bad or plain
JUDGED = ("inside", "below", "above")
TOLERANCE = 1e-9


def recommended(cells: Sequence[Cell]) -> Cell | None:
    """The smallest sets among a view's options whose coverage keeps the promise.

    Coverage above the band breaks no promise to the nodes, so it does not rule a method out; nor
    does a promise that nobody could measure.
    """
    kept = [c for c in cells if c["option"] and c["status"] in ("inside", "above", "promised")]
    sized = [cell for cell in kept if cell["set_size"] is not None]
    return min(sized, key=lambda cell: cell["set_size"], default=None)


def run_cards(cells: Sequence[Cell], whole: Sequence[Cell], info: Info | None = None) -> list[Card]:
    """The three cards of one view; ``whole`` are all cells of the page, for the count, and ``info``
    is ``run.json``."""
    info = info or {}
    best, first = recommended(cells), "Which method to take?"
    if cells[0]["coverage"] is None:
        return _cards(first, _unmeasured(cells, best, info))
    held = _held(cells, whole, info.get("config", {}).get("calibrate", "pooled"))
    return _cards(first, (_take(cells, best), held, _worst(cells, best)))


def _unmeasured(cells: Sequence[Cell], best: Cell | None, info: Info) -> Sequence[Answer]:
    """The answers of a run without test nodes."""
    level, rule = f"{100 - 100 * cells[0]['alpha']:.4g}%", cells[0]["quantile"]
    take = (
        "None of these",
        "No method here makes sets that a promise is made for.",
        "bad",
    )
    if best is not None:
        text = f"Its sets hold {best['set_size']:.2f} labels on average."
        take = best["method"], f"{text} {_against_fed(cells, best)}".strip(), "plain"
    worst = "Nobody can say without test nodes. How large each client's sets are is shown below."
    return (
        take,
        ("Not measured", promised(info, level, [rule]), "plain"),
        ("Not measured", worst, "plain"),
    )


def grid_cards(cells: Sequence[Cell]) -> list[Card]:
    """The three cards of a grid: over all its cells."""
    answers = _most_often(cells), _grid_held(cells), _grid_worst(cells)
    return _cards("Which method has the smallest sets?", answers)


def _cards(first: str, answers: Sequence[Answer]) -> list[Card]:
    questions = (first, "Did the guarantee hold?", "Who is worst off?")
    return [
        {"question": question, "answer": answer, "text": text, "tone": tone}
        for question, (answer, text, tone) in zip(questions, answers, strict=True)
    ]


def _level(cell: Cell) -> str:
    """1 − α as people write it."""
    return f"{round(1 - cell['alpha'], 6):g}"


def _of(cells: Sequence[Cell], *statuses: str) -> list[Cell]:
    return [cell for cell in cells if cell["status"] in statuses]


def _take(cells: Sequence[Cell], best: Cell | None) -> Answer:
    rule = cells[0]["quantile"]
    options = [cell for cell in cells if cell["option"]]
    if not options:
        text = "All methods here need what no party of a federation has; they are marks."
        return "None of these", text, "plain"
    if not RULES[rule].guarantee:
        least = min(options, key=lambda cell: cell["set_size"])
        text = (
            f"The quantile rule {rule} promises no coverage. Its smallest sets are those of "
            f"{least['method']}: {least['set_size']:.2f} labels, coverage "
            f"{least['coverage']:.3f} for a target of {_level(least)}."
        )
        return "None with this rule", text, "bad"
    if best is None and not _of(cells, *JUDGED):
        return "None of these", "Nothing is promised here for the nodes asked about.", "bad"
    if best is None:
        text = f"No method reached its target of {_level(cells[0])} with this score and rule."
        return "None of these", text, "bad"
    text = (
        f"Its sets hold {best['set_size']:.2f} labels and contain the true label for "
        f"{_measured(best):.1%} of the nodes asked about, on average; at least "
        f"{100 - 100 * best['alpha']:.4g}% was promised. {best['empty_rate']:.1%} of the sets are "
        "empty."
    )
    return best["method"], f"{text} {_against_fed(cells, best)}".strip(), "good"


def _measured(cell: Cell) -> float:
    """The coverage to quote: a split that was given has no other draw to average over."""
    return float(cell[SPLIT] if cell["given"] and cell[SPLIT] is not None else cell["coverage"])


def _against_fed(cells: Sequence[Cell], best: Cell) -> str:
    fed = next((cell for cell in cells if cell["method"] == "fed"), None)
    if fed is None or not fed["set_size"]:
        return ""
    if best["method"] == "fed":
        return "No other method here has smaller sets."
    less = 1 - best["set_size"] / fed["set_size"]
    return f"That is {less:.0%} smaller than plain FedAvg (fed, {fed['set_size']:.2f})."


def _held(cells: Sequence[Cell], whole: Sequence[Cell], calibrate: str) -> Answer:
    judged, rule = _of(cells, *JUDGED), cells[0]["quantile"]
    if not judged and RULES[rule].guarantee:
        by = f"By {calibrate}, {rule}" if calibrate != "pooled" else f"The rule {rule}"
        text = (
            f"{by} promises for clients counted by their calibration nodes, not for the nodes "
            "asked about, who are spread otherwise. Nothing can be judged here."
        )
        return "There is none", text, "bad"
    if not judged:
        reached = "all methods reached the target anyway"
        if short := sum(cell["below"] for cell in cells):
            reached = f"{short} of {len(cells)} methods missed the target of {_level(cells[0])}"
        text = f"The rule {rule} has no guarantee that could hold. Here {reached}."
        return "There is none", f"{text} Take the rule exact for one.", "bad"
    text = (
        f"{_by_splits(judged)} {_by_resplits(judged)} On the whole page the verdict is yes for "
        f"{len(_of(whole, 'inside', 'above'))} of {len(_of(whole, *JUDGED))} cells."
    )
    if below := _of(cells, "below"):
        return "No", f"{' '.join(map(_broken, below))} {text}", "bad"
    if above := ", ".join(cell["method"] for cell in _of(cells, "above")):
        text = f"{text} Above the band, so larger than need be: {above}."
        return "Yes, with room", text, "plain"
    return "Yes", text, "good"


def _broken(cell: Cell) -> str:
    """Why the promise of a method is not kept, in a sentence or two."""
    found = []
    if split_below(cell):
        found.append(
            f"{cell['method']} covers {cell[SPLIT]:.3f} where it was calibrated; a kept promise "
            f"gives {cell['split_low']:.3f} or more in 39 of 40 cases."
        )
    if is_rejected(cell):
        found.append(
            f"{cell['method']}: test nodes are not like calibration nodes (permutation test, "
            f"p = {cell['p_value']:.3g}), most of all at client {cell['party']} "
            f"(p = {cell['party_p_value']:.3g})."
        )
    if not found:
        found.append(f"Below the target over re-splits: {cell['method']} ({cell['coverage']:.3f}).")
    return " ".join(found)


def _by_splits(judged: Sequence[Cell]) -> str:
    """What the calibrated splits say, and the permutation test."""
    known = [cell for cell in judged if cell[SPLIT] is not None]
    if not known:
        return ""
    first = known[0]
    low, high = (
        f"{first['split_low']:.3f}",
        "" if first["split_high"] is None else f" to {first['split_high']:.3f}",
    )
    splits = "the split that was calibrated"
    if first["given"]:
        splits = "the split that you gave"
    elif first["seeds"] > 1:
        splits = f"the {first['seeds']} splits that were calibrated"
    shown = ", ".join(f"{cell['method']} {cell[SPLIT]:.3f}" for cell in known)
    text = f"On {splits}: {shown}; by chance alone, {low}{high or ' or more'} in 95 of 100 cases."
    if first["given"] and first["seeds"] > 1:
        text += " All seeds share it, so it counts as one."
    if tested := [cell["p_value"] for cell in known if cell["p_value"] is not None]:
        text += f" Calibration against test scores inside clients: p = {min(tested):.3g}"
        text += " at least." if len(tested) > 1 else "."
    return text


def _by_resplits(judged: Sequence[Cell]) -> str:
    """The check of the arithmetic."""
    if judged[0]["given"]:
        return "Re-splits say nothing about a split that was given."
    inside = sum(resplit_status(cell) == "inside" for cell in judged)
    high = max((cell["high"] for cell in judged if cell["high"] is not None), default=None)
    low = judged[0]["low"]
    promised = f"between {low:.3f} and {high:.3f}" if high is not None else f"at {low:.3f} or more"
    return (
        f"The arithmetic, over re-splits: {inside} of {len(judged)} methods lie where the theorem "
        f"puts them, {promised}."
    )


def _worst(cells: Sequence[Cell], best: Cell | None) -> Answer:
    chosen = best or min(cells, key=lambda cell: cell["set_size"])
    worst = chosen["worst"]
    if worst is None:
        return "Not recorded", "This run holds no coverage by client.", "plain"
    short = (1 - chosen["alpha"]) - worst["coverage"]
    where = "" if worst["seed"] is None or chosen["seeds"] < 2 else f" of seed {worst['seed']}"
    against = f"{short:.3f} below" if short > TOLERANCE else "still at or above"
    text = (
        f"With {chosen['method']} its coverage is {worst['coverage']:.3f}, {against} the target of "
        f"{_level(chosen)}, {_over(worst)}. {_worst_class(chosen)}The promise is a mean over the "
        "nodes asked about, not one for each client or class."
    )
    return f"Client {worst['group']}{where}", text, "bad" if short > 0.05 else "plain"


def _worst_class(cell: Cell) -> str:
    worst = cell.get("worst_class")
    if worst is None:
        return ""
    return f"The worst class is {worst['group']}: {worst['coverage']:.3f}, {_over(worst)}. "


def _over(worst: Cell) -> str:
    """How many nodes a group's coverage rests on, and how far these can be trusted. It was found
    among several, so that the interval holds for all of them at once (Bonferroni)."""
    n, groups = round(worst["n_test"]), worst["among"]
    low, high = coverage_interval(min(round(worst["coverage"] * n), n), n, 1 - 0.05 / groups)
    return f"over {n} test nodes (95% interval for the worst of {groups}: {low:.2f} to {high:.2f})"


def _most_often(cells: Sequence[Cell]) -> Answer:
    contests = [
        best["method"]
        for own in views(cells).values()
        if len({c["method"] for c in own if c["option"]}) > 1 and (best := recommended(own))
    ]
    if not contests:
        text = "No setting has several methods whose guarantee held, so there is nothing to rank."
        return "No contest", text, "plain"
    (first, count), *others = Counter(contests).most_common()
    rest = ", ".join(f"{name} in {wins}" for name, wins in others)
    text = f"It has the smallest sets that keep the promise in {count} of {len(contests)} settings"
    return first, f"{text}; {rest}." if rest else f"{text}.", "good"


def _grid_held(cells: Sequence[Cell]) -> Answer:
    inside, below, above = (len(_of(cells, status)) for status in JUDGED)
    judged = inside + below + above
    if not judged:
        return "There is none", "No cell of this grid uses a rule with a guarantee.", "plain"
    text = (
        f"Coverage lies where the theorem puts it in {inside} of {judged} cells that have a "
        f"guarantee; {below} lie below, {above} above. The splits that were calibrated decide, and "
        "re-splits where these were not recorded."
    )
    tone = "bad" if below else "plain" if above else "good"
    return f"In {inside} of {judged} cells", text, tone


def _grid_worst(cells: Sequence[Cell]) -> Answer:
    judged = _of(cells, *JUDGED) or cells
    held = [cell for cell in judged if cell["worst"] and cell["option"]]
    if not held:
        return "Not recorded", "These results hold no coverage by client.", "plain"
    chosen = min(held, key=lambda cell: cell["worst"]["coverage"] - (1 - cell["alpha"]))
    worst = chosen["worst"]
    where = "" if worst["seed"] is None else f", seed {worst['seed']}"
    text = (
        f"{chosen['dataset']}, K = {chosen['clients']}{where}, {chosen['method']}, "
        f"{chosen['score']}: coverage {worst['coverage']:.3f} for a target of {_level(chosen)}, "
        f"{_over(worst | {'among': sum(cell['worst']['among'] for cell in held)})}. The promise is "
        "for all clients together."
    )
    return f"Client {worst['group']} on {chosen['dataset']}", text, "bad"
