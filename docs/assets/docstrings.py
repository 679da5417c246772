"""Show docstrings well: a plugin of griffe, which reads them for the site."""

import re
from typing import Any

import griffe

_SECTION = re.compile(r"^(Args|Raises):\n((?:    .*\n?|\n(?=    ))+)", re.MULTILINE)
_EXAMPLE = re.compile(r"^(?:>>> .*(?:\n\.\.\. .*)*\n?)+", re.MULTILINE)


class Examples(griffe.Extension):
    """Put a fence around lines that begin with `>>>`, and make lists of `Args:` and `Raises:`."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of a module, a class, a function or an attribute."""
        if obj.docstring:
            text = _EXAMPLE.sub(_fence, obj.docstring.value)
            obj.docstring.value = _SECTION.sub(_list_items, text)


def _list_items(match: re.Match[str]) -> str:
    """Return a section of names and their meanings as a list."""
    title = {"Args": "Parameters", "Raises": "Raises"}[match[1]]
    items = re.sub(r"^    ([\w.]+): ", r"* **\1** - ", match[2], flags=re.MULTILINE)
    return f"{title}:\n\n{items}"


def _fence(match: re.Match[str]) -> str:
    code = re.sub(r"^(?:>>>|\.\.\.) ", "", match[0].rstrip("\n"), flags=re.MULTILINE)
    return f"```python\n{code}\n```\n"
