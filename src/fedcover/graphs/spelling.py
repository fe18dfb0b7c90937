"""How tables spell things: what their columns are called, and their numbers.

A column may have common other names, in any case, with blanks or hyphens. A number has a decimal
point or, between semicolons, a comma.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence

import polars as pl

from fedcover.errors import shown

SYNONYMS: dict[str, tuple[str, ...]] = {
    "id": ("id", "node", "node_id"),
    "label": ("label", "class", "y", "target_label"),
    "client": ("client", "party", "site"),
    "split": ("split", "role", "set"),
    "source": ("source", "src", "from", "u", "source_id"),
    "target": ("target", "dst", "to", "v", "target_id"),
    "node": ("node", "id", "node_id"),
    "party": ("party", "client", "site"),
}
"""The names that a column may have, by what it means."""

NANS = ("nan", "NaN", "NAN")  # what tables spell where there is no value
_COMMA = r"^[-+]?(\d+,\d*|,\d+)([eE][-+]?\d+)?$"
_POINT = r"^[-+]?(\d+\.\d*|\.\d+)([eE][-+]?\d+)?$"
_WHOLE = r"^-?\d+[.,]0$"
_LARGEST = 2**53  # beyond, a float stands for several integers
_SHORT = r"^[-+]?\d{1,3}$"
_THOUSAND = r"^[-+]?[1-9]\d{0,2}[.,]\d{3}$"
_SEPARATED = r"^[-+]?(\d{1,3}([.,'\s]\d{3})+([.,]\d+)?|\d+([.,]\d+)?)\s*%?$"


def meanings(
    header: Sequence[str], wanted: Collection[str], features: Collection[str] = ()
) -> list[str]:
    """What every column of a header is: one of ``wanted``, or its own name without blanks.

    ``features`` are names that an agreed schema has given to features, which they stay. What is
    wanted may have a name of its own, such as the column of groups.

    >>> meanings([" Node ID", "Class", "y 2"], ("id", "label"))
    ['id', 'label', 'y 2']
    """
    known = {_folded(name): meaning for meaning in wanted for name in names_of(meaning)}
    plain = [name.strip() for name in header]
    return [name if name in features else known.get(_folded(name), name) for name in plain]


def names_of(meaning: str) -> tuple[str, ...]:
    """The names that a column of this meaning may have, its own first."""
    return SYNONYMS.get(meaning, (meaning,))


def _folded(name: str) -> str:
    return re.sub(r"[\s_-]+", "_", name.strip().lower())


def stripped(values: pl.Series) -> pl.Series:
    """Words without blanks around them, empty ones as null."""
    text = values.cast(pl.String).str.strip_chars()
    return text.replace([""], [None])


def as_integers(values: pl.Series) -> pl.Series:
    """Names without the ".0" that pandas gives to integers, if each has it, where one is missing.

    >>> as_integers(pl.Series(["7.0", None, "8.0"])).to_list()
    ['7', None, '8']
    >>> as_integers(pl.Series([7.0, float("nan")])).to_list(), as_integers(pl.Series([7.5])).dtype
    ([7, None], Float64)
    """
    if values.dtype.is_float():
        known = values.fill_nan(None)
        whole = ((known.floor() == known) & (known.abs() < _LARGEST)).all()
        return known.cast(pl.Int64) if whole else values
    if values.dtype != pl.String or not _like(values.drop_nulls().head(1), _WHOLE).all():
        return values
    whole = values.str.contains(_WHOLE).all()
    return values.str.head(-2) if whole else values


def with_points(
    frame: pl.DataFrame,
    columns: Iterable[str],
    refuse_where: Callable[[pl.Series, str, str, pl.Series], None],
) -> pl.DataFrame:
    """The frame with decimal points in those of the columns that hold numbers; words stay.

    Where commas stand for points, a point would be something else: it is refused, and so is a
    number that may be one of thousands.
    """
    texts = {name: stripped(frame[name]) for name in columns}
    numbers = {name: text for name, text in texts.items() if _are_numbers(text)}
    with_commas = [name for name, text in numbers.items() if _like(text, _COMMA).any()]
    for name, text in numbers.items():
        why = "{} may be a number of thousands; write numbers without separators"
        refuse_where(_thousands(text), name, why, text)
        if with_commas:
            other = shown(with_commas[0])
            why = f"{{}} has a decimal point, but the column {other} has decimal commas"
            refuse_where(_like(text, _POINT), name, why, text)
    for name in with_commas:
        points = numbers[name].str.replace(",", ".", literal=True)
        points = points.zip_with(_like(numbers[name], _COMMA), numbers[name])
        frame = frame.with_columns(points.alias(name))
    return frame


def separated(text: pl.Series) -> pl.Series:
    """Where there is a number with a comma, a percent sign or separated thousands, if words
    (without blanks around them) are mostly such; for words they are not meant."""
    found = _like(text, _SEPARATED) & text.cast(pl.Float32, strict=False).is_null()
    return found & (2 * int(found.sum()) > len(text.drop_nulls()))


def _are_numbers(text: pl.Series) -> bool:
    """Whether there are more numbers than words."""
    text = text.drop_nulls()
    numbers = _like(text, _COMMA) | text.cast(pl.Float32, strict=False).is_not_null()
    return 2 * int(numbers.sum()) > len(text)


def _thousands(text: pl.Series) -> pl.Series:
    """Where three digits follow a separator, if they do so after each, and no longer number is
    without: 950 and 1,234 are what a spreadsheet shows as thousands."""
    found = _like(text, _THOUSAND)
    others = text.filter(~found).drop_nulls()
    return found & (found.sum() > 1 and len(others) > 0 and bool(_like(others, _SHORT).all()))


def _like(text: pl.Series, pattern: str) -> pl.Series:
    return text.str.contains(pattern).fill_null(False)
