"""How a setting is declared, and the one check of all settings.

A group of settings is a frozen dataclass below :class:`Settings`. Each field stands once: its
annotation is the type, :func:`setting` adds the default, the help and the range. Files, options of
the command line and Flower's ``--run-config`` are made from that declaration. Nothing heavy is
imported here, because the command line needs it before anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import inf
from numbers import Real
from types import NoneType
from typing import Any, ClassVar, NamedTuple, get_args, get_origin, get_type_hints

from fedcover.errors import UsageError


@dataclass(frozen=True)
class Rule:
    """What a value must be beside its type: a test, and the words that follow "it must"."""

    holds: Callable[[Any], bool]
    words: str
    choices: tuple[str, ...] = ()


def at_least(least: int) -> Rule:
    """A range of whole numbers."""
    return Rule(lambda n: n >= least, f"be a whole number of {least} or more")


def one_of(choices: tuple[str, ...]) -> Rule:
    """A word of these."""
    return Rule(choices.__contains__, f"be one of {', '.join(choices)}", choices)


POSITIVE = Rule(lambda x: 0 < x < inf, "be a positive number")
NOT_NEGATIVE = Rule(lambda x: 0 <= x < inf, "be a number of 0 or more")
BETWEEN = Rule(lambda x: 0 < x < 1, "lie strictly between 0 and 1")
BELOW_ONE = Rule(lambda x: 0 <= x < 1, "be at least 0 and below 1")
SHARE = Rule(lambda x: 0 < x <= 1, "be above 0 and at most 1")
ANY_WORD = Rule(lambda _: True, "be a word")
YES_OR_NO = Rule(lambda _: True, "be true or false")


def setting(default: Any, meaning: str, rule: Rule = ANY_WORD, **more: Any) -> Any:
    """Declare a field of :class:`Settings`; ``more`` are further fields of :class:`Setting`."""
    return field(default=default, metadata={"meaning": meaning, "rule": rule, **more})


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting, as it was declared."""

    name: str
    kind: type[Any]  # of the value, or of each of several
    several: bool
    optional: bool
    default: Any
    meaning: str = ""  # a sentence
    rule: Rule = ANY_WORD
    each: str = ""  # what one of several is called
    distinct: bool = True
    spelt: Callable[[Any], Any] | None = None  # one spelling for several of the same meaning
    off: str = ""  # the option that says no
    panel: str = ""  # where the command line's help shows it
    rare: bool = False  # whether that help leaves it out
    simulated: bool = False  # whether only a simulation has it
    prefix: str = ""  # of the names of a table's settings outside of it

    @property
    def is_table(self) -> bool:
        """Whether it holds further settings."""
        return issubclass(self.kind, Settings)

    def checked(self, value: Any) -> Any:
        """The value as it is kept, or a sentence about what is wrong with it."""
        value = _plain(value)
        if value is None and self.optional:
            return None
        if self.is_table:
            return self._of_table(value)
        if self.several:
            return self._of_several(value)
        kept = self._one(value)
        if kept is None:
            raise UsageError(f"{self.name} is {_shown(value)}; it must {self.rule.words}.")
        return kept

    def read(self, text: Any) -> Any:
        """The value that a text spells; what it cannot spell stays text, for the check to refuse.

        What is no text (Flower has numbers too) is the value already.
        """
        if not isinstance(text, str):
            return text
        if self.several:
            return tuple(self._from(word.strip()) for word in text.split(","))
        return self._from(text)

    def _from(self, word: str) -> Any:
        if self.kind is bool:
            return {"true": True, "false": False}.get(word, word)
        try:
            return self.kind(word)
        except ValueError:
            return word

    def _of_several(self, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, bool) and isinstance(value, str | Real):
            value = (value,)
        if not isinstance(value, Sequence) or isinstance(value, bytes):
            what = "words" if self.kind is str else "numbers"
            raise UsageError(f"{self.name} is {value!r}; it must be a tuple of {what}.")
        if not value:
            choices = ", ".join(self.rule.choices)
            instead = f"choose from {choices}" if choices else f"give at least one {self.each}"
            raise UsageError(f"{self.name} is empty; {instead}.")
        kept = []
        for given in value:
            one = self._one(given)
            if one is None:
                must = f"every {self.each} must" if self.each else "it must"
                raise UsageError(f"{self.name} has {_shown(given)}; {must} {self.rule.words}.")
            one = self.spelt(one) if self.spelt else one
            if self.distinct and one in kept:
                raise UsageError(f"{self.name} names {one!r} twice.")
            kept.append(one)
        return tuple(kept)

    def _one(self, value: Any) -> Any:
        """The value in the setting's type, None if it is not such a value."""
        value = _plain(value)
        if self.kind is float and not isinstance(value, bool) and isinstance(value, Real):
            try:
                value = float(value)
            except OverflowError:
                return None
        if not isinstance(value, self.kind) or (isinstance(value, bool) and self.kind is not bool):
            return None
        return value if self.rule.holds(value) else None

    def _of_table(self, value: Any) -> Settings:
        if isinstance(value, self.kind):
            kept: Settings = value
            return kept
        flattened(self.kind, value, place=f"{self.name}.")  # refuses what has no place in it
        try:
            made: Settings = self.kind(**value)
        except UsageError as error:  # its first word is the setting
            raise UsageError(f"{self.name}.{error}") from None
        return made


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A group of settings, each checked when the object is made."""

    panel: ClassVar[str] = ""  # of all its settings that name no other
    rare: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name, one in declared(type(self)).items():
            self._keep(name, one.checked(getattr(self, name)))

    def _keep(self, name: str, value: Any) -> None:
        # While it is being made a frozen object is written to: one spelling for each value.
        object.__setattr__(self, name, value)


_DECLARED: dict[type[Settings], dict[str, Setting]] = {}


def declared(kind: type[Settings]) -> dict[str, Setting]:
    """The settings of a group by their names, its tables among them."""
    if kind not in _DECLARED:
        _DECLARED[kind] = _read(kind)
    return _DECLARED[kind]


def _read(kind: type[Settings]) -> dict[str, Setting]:
    hints, found = get_type_hints(kind), {}
    for entry in fields(kind):
        hint = hints[entry.name]
        optional = NoneType in get_args(hint)
        if optional:
            (hint,) = (one for one in get_args(hint) if one is not NoneType)
        several = get_origin(hint) is tuple
        found[entry.name] = Setting(
            name=entry.name,
            kind=get_args(hint)[0] if several else hint,
            several=several,
            optional=optional,
            default=entry.default,
            **{"panel": kind.panel, "rare": kind.rare, **entry.metadata},
        )
    return found


class Option(NamedTuple):
    """A setting, and where it stands: ("gen", "vae", "lr")."""

    path: tuple[str, ...]
    setting: Setting


def options(kind: type[Settings]) -> dict[str, Option]:
    """Every setting under the name that it has outside of its table, as ``vae_lr``."""
    found: dict[str, Option] = {}
    for name, one in declared(kind).items():
        if not one.is_table:
            found[name] = Option((name,), one)
            continue
        for inner, (path, own) in options(one.kind).items():
            # Only a table's own settings get its prefix: those below have one already.
            outer = f"{one.prefix}{inner}" if len(path) == 1 else inner
            found[outer] = Option((name, *path), own)
    return found


def flattened(
    kind: type[Settings], given: Any, prefix: str = "", place: str = ""
) -> dict[str, Any]:
    """Settings in tables under the names of :func:`options`; a name that is unknown is refused."""
    given = vars(given) if isinstance(given, kind) else given
    if not isinstance(given, Mapping):
        raise UsageError(f"{place[:-1]} is {given!r}; it must be a table of settings.")
    known = declared(kind)
    flat: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            raise unknown(key, known, place)
        if known[key].is_table:
            flat |= flattened(known[key].kind, value, known[key].prefix, f"{place}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def nested(kind: type[Settings], flat: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings in tables again."""
    known = options(kind)
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *tables, name = known[key].path
        place = tree
        for inner in tables:
            place = place.setdefault(inner, {})
        place[name] = value
    return tree


def unknown(key: Any, known: Sequence[str] | Mapping[str, Any], place: str = "") -> UsageError:
    """The refusal of a name, with the closest one that is known."""
    from difflib import get_close_matches

    close = get_close_matches(str(key), known, n=1)
    hint = f"; did you mean {place}{close[0]}?" if close else "."
    return UsageError(f"there is no setting called {f'{place}{key}'!r}{hint}")


def _shown(value: Any) -> str:
    return f"{value:.12g}" if isinstance(value, float) else repr(value)


def _plain(value: Any) -> Any:
    """Numpy's numbers and arrays as Python's."""
    return value.tolist() if hasattr(value, "tolist") else value
