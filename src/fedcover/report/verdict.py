"""What a newcomer wants to know first: which method, did the guarantee hold, who is worst off.

Each answer is a card: a question, the answer in large type, and one or two plain sentences.
"""

from collections import Counter
from collections.abc import Sequence

from fedcover.conformal import RULES
from fedcover.report.cells import Cell, views

Card = dict[str, str]
Answer = tuple[str, str, str]  # in large type, in sentences, and its tone: good, bad or plain
JUDGED = ("inside", "below", "above")
TOLERANCE = 1e-9


def recommended(cells: Sequence[Cell]) -> Cell | None:
    """The smallest sets among a view's options whose coverage keeps the promise.

    Coverage above the band breaks no promise to the nodes, so it does not rule a method out.
    """
    kept = [c for c in cells if c["option"] and c["status"] in ("inside", "above")]
    return min(kept, key=lambda cell: cell["set_size"], default=None)


def run_cards(cells: Sequence[Cell], whole: Sequence[Cell]) -> list[Card]:
    """The three cards of one view; ``whole`` are all cells of the page, for the count."""
    best = recommended(cells)
    answers = _take(cells, best), _held(cells, whole), _worst(cells, best)
    return _cards("Which method to take?", answers)


def grid_cards(cells: Sequence[Cell]) -> list[Card]:
    """The three cards of a grid: over all its cells."""
    answers = _most_often(cells), _grid_held(cells), _grid_worst(cells)
    return _cards("Which method has the smallest sets?", answers)


def _cards(first: str, answers: Sequence[Answer]) -> list[Card]:
    questions = (first, "Did the guarantee hold?", "Which client is worst off?")
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
    if best is None:
        text = f"No method reached its target of {_level(cells[0])} with this score and rule."
        return "None of these", text, "bad"
    text = (
        f"Its sets hold {best['set_size']:.2f} labels on average and contain the true one "
        f"for {best['coverage']:.1%} of the nodes; at least {100 - 100 * best['alpha']:.4g}% was "
        "promised."
    )
    return best["method"], f"{text} {_against_fed(cells, best)}".strip(), "good"


def _against_fed(cells: Sequence[Cell], best: Cell) -> str:
    fed = next((cell for cell in cells if cell["method"] == "fed"), None)
    if fed is None or not fed["set_size"]:
        return ""
    if best["method"] == "fed":
        return "No other method here has smaller sets."
    less = 1 - best["set_size"] / fed["set_size"]
    return f"That is {less:.0%} smaller than plain FedAvg (fed, {fed['set_size']:.2f})."


def _held(cells: Sequence[Cell], whole: Sequence[Cell]) -> Answer:
    judged, inside = _of(cells, *JUDGED), _of(cells, "inside")
    if not judged:
        reached = "all methods reached the target anyway"
        if short := sum(cell["below"] for cell in cells):
            reached = f"{short} of {len(cells)} methods missed the target of {_level(cells[0])}"
        text = f"The rule {cells[0]['quantile']} has no guarantee that could hold. Here {reached}."
        return "There is none", f"{text} Take the rule exact for one.", "bad"
    high = max((cell["high"] for cell in judged if cell["high"] is not None), default=None)
    low = judged[0]["low"]
    promised = f"between {low:.3f} and {high:.3f}" if high is not None else f"at {low:.3f} or more"
    text = (
        f"{len(inside)} of {len(judged)} methods lie where the theorem puts them, {promised}. On "
        f"the whole page: {len(_of(whole, 'inside'))} of {len(_of(whole, *JUDGED))} cells."
    )
    if below := _of(cells, "below"):
        names = ", ".join(f"{cell['method']} ({cell['coverage']:.3f})" for cell in below)
        return "No", f"Below the target: {names}. {text}", "bad"
    if above := ", ".join(cell["method"] for cell in _of(cells, "above")):
        text = f"{text} Above the band, so larger than need be: {above}."
        return "Yes, with room", text, "plain"
    return "Yes", text, "good"


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
        f"{_level(chosen)}, over {worst['n_test']:.0f} test nodes. The promise is for all clients "
        "together, not for each."
    )
    return f"Client {worst['group']}{where}", text, "bad" if short > 0.05 else "plain"


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
        f"Mean coverage lies in the theorem's band in {inside} of {judged} cells that have a "
        f"guarantee; {below} lie below it, {above} above."
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
        f"over {worst['n_test']:.0f} test nodes. The promise is for all clients together."
    )
    return f"Client {worst['group']} on {chosen['dataset']}", text, "bad"
