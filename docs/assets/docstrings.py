"""Show the examples of docstrings as code: a plugin of griffe, which reads them for the site."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^(?:>>> .*(?:\n\.\.\. .*)*\n?)+", re.MULTILINE)


class Examples(griffe.Extension):
    """Put a fence around lines that begin with `>>>`."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of a module, a class, a function or an attribute."""
        if obj.docstring and ">>> " in obj.docstring.value:
            text = _EXAMPLE.sub(_fenced, obj.docstring.value)
            obj.docstring.value = text


def _fenced(match: re.Match[str]) -> str:
    code = re.sub(r"^(?:>>>|\.\.\.) ", "", match[0].rstrip("\n"), flags=re.MULTILINE)
    return f"```python\n{code}\n```\n"
