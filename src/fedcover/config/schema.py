"""How a setting is declared, and the one check of all settings.

A group of settings is a frozen dataclass below :class:`Settings`. A field's annotation is the type,
:func:`setting` adds the default, the help and the range. Files, options of the command line and
Flower's ``--run-config`` are made from that. Nothing heavy is imported: the command line waits.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from types import NoneType
from typing import Any, ClassVar, NamedTuple, get_args, get_origin, get_type_hints

from fedcover.errors import UsageError


class Rule(NamedTuple):
    """What a value must be beside its type: a test, and the words that follow "it must"."""

    holds: Callable[[Any], bool]
    words: str
    choices: tuple[str, ...] = ()


YES_OR_NO = Rule(lambda _: True, "be true or false")


def setting(
    default: Any, meaning: str, rule: Rule | tuple[str, ...] = YES_OR_NO, **more: Any
) -> Any:
    """Declare a field of :class:`Settings`: a rule or words to choose from, and more fields."""
    if not isinstance(rule, Rule):
        rule = Rule(rule.__contains__, f"be one of {', '.join(rule)}", rule)
    return field(default=default, metadata={"meaning": meaning, "rule": rule, **more})


@dataclass(kw_only=True, eq=False, repr=False)
class Setting:
    """One setting, as it was declared."""

    path: tuple[str, ...]  # as ("gen", "vae", "lr")
    kind: type[Any]  # of the value, or of each of several
    several: bool
    optional: bool
    default: Any
    meaning: str = ""  # a sentence
    rule: Rule = YES_OR_NO
    each: str = ""  # what one of several is called
    distinct: bool = True
    spelt: Callable[[Any], Any] | None = None  # one spelling for several of the same meaning
    off: str = ""  # the option that says no
    panel: str = ""  # where the command line's help shows it, and those declared after it
    rare: bool = False  # whether that help leaves it out
    simulated: bool = False  # whether only a simulation has it

    @property
    def name(self) -> str:
        """Its name in its own group."""
        return self.path[-1]

    @property
    def spelt_default(self) -> str:
        """The default as :meth:`read` reads it; nothing where there is none."""
        values = self.default if self.several else (self.default,)
        words = (f"{one:g}" if isinstance(one, float) else str(one) for one in values or ())
        return "" if self.default is None else ",".join(words)

    @property
    def help(self) -> str:
        """Its meaning, what there is to choose from, and the default."""
        choices = f". One of: {', '.join(self.rule.choices)}" if self.rule.choices else ""
        shown = self.spelt_default and self.kind is not bool
        default = f" (default: {self.spelt_default})" if shown else ""
        return f"{self.meaning[:-1]}{choices}{default}."

    @property
    def is_table(self) -> bool:
        """Whether it holds further settings."""
        return issubclass(self.kind, Settings)

    def read(self, text: Any) -> Any:
        """The value that a text spells; what spells none stays as it is, for the check to judge."""
        if not isinstance(text, str):
            return text
        if self.several:
            return tuple(self._from(word.strip()) for word in text.split(","))
        return self._from(text)

    def _from(self, word: str) -> Any:
        try:
            return {"true": True, "false": False}[word] if self.kind is bool else self.kind(word)
        except (KeyError, ValueError):
            return word

    def checked(self, value: Any) -> Any:
        """The value as it is kept, or a sentence about what is wrong with it."""
        value = _plain(value)
        if (value is None and self.optional) or (self.is_table and isinstance(value, self.kind)):
            return value
        if self.several:
            return self._several(value)
        if not self.is_table:
            return self._one(value, f"{self.name} is")
        flattened(self.kind, value, f"{self.name}.")  # refuses what has no place in it
        try:
            return self.kind(**value)
        except UsageError as error:  # its first word is the setting
            raise UsageError(f"{self.name}.{error}") from None

    def _several(self, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, bool) and isinstance(value, str | Real):
            value = (value,)
        if not isinstance(value, Sequence) or isinstance(value, bytes):
            what = "words" if self.kind is str else "numbers"
            raise UsageError(f"{self.name} is {value!r}; it must be a tuple of {what}.")
        if not value:
            choices = ", ".join(self.rule.choices)
            instead = f"choose from {choices}" if choices else f"give at least one {self.each}"
            raise UsageError(f"{self.name} is empty; {instead}.")
        kept = tuple(self._one(_plain(one), f"{self.name} has") for one in value)
        twice = [one for one in kept if self.distinct and kept.count(one) > 1]
        if twice:
            raise UsageError(f"{self.name} names {twice[0]!r} twice.")
        return kept

    def _one(self, value: Any, refusal: str) -> Any:
        kept = value
        if self.kind is float and not isinstance(value, bool) and isinstance(value, Real):
            with suppress(OverflowError):
                kept = float(value)
        typed = isinstance(kept, self.kind) and isinstance(kept, bool) == (self.kind is bool)
        if not (typed and self.rule.holds(kept)):
            shown = f"{value:.12g}" if isinstance(value, float) else repr(value)
            must = f"every {self.each} must" if self.each else "it must"
            raise UsageError(f"{refusal} {shown}; {must} {self.rule.words}.")
        return self.spelt(kept) if self.spelt else kept


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A group of settings, each checked when the object is made."""

    panel: ClassVar[str] = ""
    rare: ClassVar[bool] = False
    prefix: ClassVar[str] = ""  # of its settings' names outside of its table

    def __post_init__(self) -> None:
        for name, one in declared(type(self)).items():
            self._keep(name, one.checked(getattr(self, name)))

    def _keep(self, name: str, value: Any) -> None:
        # While it is being made a frozen object is written to: one spelling for each value.
        object.__setattr__(self, name, value)


_DECLARED: dict[type[Settings], dict[str, Setting]] = {}


def declared(kind: type[Settings]) -> dict[str, Setting]:
    """The settings of a group by their names, its tables among them."""
    if kind in _DECLARED:
        return _DECLARED[kind]
    hints, found, panel = get_type_hints(kind), {}, kind.panel
    for entry in fields(kind):
        hint, panel = hints[entry.name], entry.metadata.get("panel", panel)
        optional = NoneType in get_args(hint)
        if optional:
            (hint,) = (one for one in get_args(hint) if one is not NoneType)
        several = get_origin(hint) is tuple
        found[entry.name] = Setting(
            path=(entry.name,),
            kind=get_args(hint)[0] if several else hint,
            several=several,
            optional=optional,
            default=entry.default,
            **{"rare": kind.rare, **entry.metadata, "panel": panel},
        )
    return _DECLARED.setdefault(kind, found)


def options(kind: type[Settings]) -> dict[str, Setting]:
    """Every setting under the name that it has outside of its table, as ``vae_lr``."""
    found: dict[str, Setting] = {}
    for name, one in declared(kind).items():
        if one.is_table:
            inner = options(one.kind).items()
            found |= {outer: replace(own, path=(name, *own.path)) for outer, own in inner}
        else:
            found[f"{kind.prefix}{name}"] = one
    return found


def flattened(kind: type[Settings], given: Any, place: str = "") -> dict[str, Any]:
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
            flat |= flattened(known[key].kind, value, f"{place}{key}.")
        else:
            flat[f"{kind.prefix}{key}"] = value
    return flat


def nested(kind: type[Settings], flat: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings in tables again."""
    known = options(kind)
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *tables, name = known[key].path
        place = tree
        for table in tables:
            place = place.setdefault(table, {})
        place[name] = value
    return tree


def unknown(key: Any, known: Sequence[str] | Mapping[str, Any], place: str = "") -> UsageError:
    """The refusal of a name, with the closest one that is known."""
    from difflib import get_close_matches

    close = get_close_matches(str(key), known, n=1)
    hint = f"; did you mean {place}{close[0]}?" if close else "."
    return UsageError(f"there is no setting called {f'{place}{key}'!r}{hint}")


def _plain(value: Any) -> Any:
    """Numpy's numbers and arrays as Python's."""
    return value.tolist() if hasattr(value, "tolist") else value
