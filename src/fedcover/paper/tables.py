"""A table as text: Markdown for reading, LaTeX for papers, CSV for programs."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

WIDE = 60  # characters that fit on a page, the gaps between columns not counted
_SYMBOLS = {
    "±": "pm", "≤": "leq", "×": "times", "·": "cdot", "α": "alpha", "ε": "varepsilon",
    "Θ": "Theta", "▼": "downarrow", "▲": "uparrow",
}  # fmt: skip
_LATEX = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%$#_{}"}
    | {letter: rf"$\{name}$" for letter, name in _SYMBOLS.items()}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"−": "$-$", "–": "--", "²": "$^2$", "|": "$|$"}
)


@dataclass(frozen=True)
class Table:
    """Headings and cells as text, the sentences under them, and the same as tidy data."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    data: pl.DataFrame
    notes: Sequence[str] = ()
    words: int = 1  # leading columns that are words, the others are numbers
    extra: "dict[str, Table]" = field(default_factory=dict)  # smaller tables of the same target


def markdown(table: Table) -> str:
    """GitHub's kind of table; notes are a list below."""
    align = ["---" if i < table.words else "--:" for i in range(len(table.headings))]
    lines = [_row(table.headings), "|" + "|".join(align) + "|", *map(_row, table.rows)]
    parts = [f"## {table.title}", "\n".join(lines)]
    if table.notes:
        parts.append("\n".join(f"- {note}" for note in table.notes))
    return "\n\n".join(parts) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def latex(table: Table) -> str:
    """A ``tabular`` with booktabs' rules inside a ``table``; ready for ``\\input``.

    It needs the packages booktabs and graphicx: a wide one is scaled to the text's width.
    """
    columns = zip(table.headings, *table.rows, strict=True)
    wide = sum(max(map(len, column)) for column in columns) > WIDE
    alignment = "l" * table.words + "r" * (len(table.headings) - table.words)
    headings, *rows = (
        " & ".join(map(escape, cells)) + r" \\" for cells in (table.headings, *table.rows)
    )
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape(table.title)}}}",
        *([r"\resizebox{\textwidth}{!}{%"] if wide else []),
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        headings,
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}" + ("}" if wide else ""),
        *(rf"\par\smallskip\footnotesize {escape(note)}" for note in table.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def signed(number: float, form: str = "+.2f") -> str:
    """A number with its sign, the minus as it is printed."""
    return format(number, form).replace("-", "−")


def escape(text: str) -> str:
    """Text as LaTeX sees it."""
    return text.translate(_LATEX)
