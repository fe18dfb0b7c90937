"""Docstrings as the API reference shows them.

Markdown has no roles, so names become code. A field's comment is its description; a setting's
meaning and default are the schema's. What a module says about itself is for readers of the source;
the site has pages of its own for that.
"""

import re
from typing import Any

from griffe import Attribute, Docstring, Extension, Module, Object

from fedcover.config import settings
from fedcover.config.schema import Settings, declared

_ROLE = re.compile(r":(?:mod|func|class|meth|attr|data):`~?([^`]+)`")
_COMMENT = re.compile(r"  # (.+)$")


class ForTheSite(Extension):
    """Write ``:func:`a.b``` as ``a.b``, take fields' comments, drop the heads of modules."""

    def on_attribute_instance(self, *, attr: Attribute, **_: Any) -> None:
        """Show a setting's default and meaning instead of its declaration."""
        group = getattr(settings, attr.parent.name, None) if attr.parent is not None else None
        if not (isinstance(group, type) and issubclass(group, Settings)):
            return
        one = declared(group).get(attr.name)
        if one is not None and not one.is_table:
            attr.value = repr(one.default)
            attr.docstring = Docstring(one.meaning, parent=attr)

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite one object's docstring."""
        if isinstance(obj, Module):
            obj.docstring = None
        elif obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(r"`\1`", obj.docstring.value)
        elif isinstance(obj, Attribute) and obj.parent is not None and obj.parent.is_class:
            comment = _COMMENT.search(obj.source)
            if comment:
                obj.docstring = Docstring(_sentence(comment[1]), parent=obj)


def _sentence(comment: str) -> str:
    return comment[0].upper() + comment[1:] + "."
