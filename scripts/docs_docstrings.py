"""Docstrings as the API reference shows them: Markdown has no roles, so names become code."""

import re
from typing import Any

from griffe import Extension, Object

_ROLE = re.compile(r":(?:mod|func|class|meth|attr|data):`~?([^`]+)`")


class PlainRoles(Extension):
    """Write ``:func:`a.b``` as ``a.b``."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite one object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(r"`\1`", obj.docstring.value)
