"""The keys of a mapping of options, and the forms of their values."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, cast

from copilot_runtime.app.argument_checks import describe
from copilot_runtime.base.errors import ConfigurationFailed

_LEAST_SIMILARITY = 0.6


def is_names(value: object) -> bool:
    """Return whether a value is a list of texts, none of them empty."""
    if not isinstance(value, list | tuple):
        return False
    return all(isinstance(item, str) and item for item in cast("list[object]", value))


def _is_texts(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    items = cast("Mapping[object, object]", value).items()
    return all(isinstance(text, str) for item in items for text in item)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


FORMS: Mapping[str, Callable[[object], bool]] = {
    "true or false": lambda value: isinstance(value, bool),
    "true, false or the name of the tool": lambda value: (
        isinstance(value, bool) or (isinstance(value, str) and value != "")
    ),
    "a text": lambda value: isinstance(value, str),
    "a number from 1 on": _is_count,
    "a list": lambda value: isinstance(value, list | tuple),
    "a list of names": is_names,
    "a catalog": lambda value: isinstance(value, Mapping | list | tuple),
    "an object": lambda value: isinstance(value, Mapping),
    "an object of texts": _is_texts,
}
"""What a value may be, in words, and whether one is that."""


@dataclass(frozen=True, slots=True)
class OptionShape:
    """The keys of a mapping: key → (field of our options, form), and hints for other keys."""

    place: str
    keys: Mapping[str, tuple[str, str]]
    hints: Mapping[str, str] = field(default_factory=dict[str, str])

    def read(self, value: object) -> dict[str, Any]:
        """Return the fields of our options; None counts as absent.

        Raises `ConfigurationFailed` for what is no mapping, an unknown key and a wrong value.
        """
        if not isinstance(value, Mapping):
            raise ConfigurationFailed(f"{self.place} is {describe(value)}, and not an object.")
        fields: dict[str, Any] = {}
        for key, item in cast("Mapping[object, Any]", value).items():
            if key not in self.keys:
                raise self._build_error(str(key))
            name, form = self.keys[cast("str", key)]
            if item is None:
                continue
            if not FORMS[form](item):
                raise ConfigurationFailed(f"{key!r} of {self.place} is not {form}.")
            fields[name] = item
        return fields

    def _build_error(self, key: str) -> ConfigurationFailed:
        hint = self.hints.get(key)
        # our own names are written as Node's, and `injectA2UiTool` is `injectA2UITool`
        spellings = {_fold(own): name for name, (own, _) in self.keys.items()}
        spellings |= {_fold(name): name for name in self.keys}
        close = get_close_matches(_fold(key), spellings, n=1, cutoff=_LEAST_SIMILARITY)
        guess = f"Did you mean {spellings[close[0]]!r}?" if close and hint is None else ""
        way_out = guess or f"Known: {', '.join(self.keys)}."
        return ConfigurationFailed(f"{self.place} has no key {key!r}. {way_out}", hint=hint)


def _fold(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
