"""Put the committed results into the README: `python scripts/readme_results.py`.

Between the comments ``results: main`` and ``end`` come the short main table and its counts, as
`fedcover paper main` wrote them; tests/test_results.py fails when they differ.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "default"


def main() -> None:
    """Write the README anew."""
    table = [
        line
        for line in (RESULTS / "main-short.md").read_text().splitlines()
        if line.startswith("|")
    ]
    notes = (RESULTS / "main.md").read_text()
    counted = re.search(r"- fed\+prox\+prior\+mix, lac: (.*)", notes)
    kept = re.search(r"- theorem1: (.*)", notes)
    if not counted or not kept:
        raise SystemExit(f"{RESULTS / 'main.md'} has no counts.")
    said = f"Ours against the paper's Gen: {counted[1]} All methods, theorem1: {kept[1]}"
    block = "\n".join([*table, "", said])
    path = ROOT / "README.md"
    text = path.read_text()
    begin, end = "<!-- results: main -->", "<!-- end -->"
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{path} has no {begin} … {end}.")
    path.write_text(f"{before}{begin}\n{block}\n{end}{after}")


if __name__ == "__main__":
    main()
