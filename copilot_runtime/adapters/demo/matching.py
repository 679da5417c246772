"""Finds the actions a sentence speaks of, for the demo model."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from copilot_runtime.adapters.demo.arguments import (
    find_color,
    options_of,
    properties_of,
    required_of,
    wants_color,
    words,
)
from copilot_runtime.interfaces import Action

_SEPARATOR = re.compile(r'("[^"]*"|“[^”]*”)|(?:[;!?\n]|[.,](?=\s)|\b(?:and|then|also)\b)')
_VERBS = frozenset(
    words(
        "add ask be call change check create delete do fetch find get give list load look make "
        "open put read remove run save search send set show switch tell turn update use write"
    )
)
_SMALL = frozenset(
    words(
        "a all an and any are as at by can could for from has have how i in into is it its may "
        "me my now of on one or our please so some that the them then this to user want was what "
        "when where which who will with would you your"
    )
)
_SAME = {
    "accent": "color",
    "background": "color",
    "clock": "time",
    "colour": "color",
    "dice": "roll",
    "hour": "time",
    "memo": "note",
    "reminder": "todo",
    "task": "todo",
    "temperature": "weather",
}
_NAME, _COLOR, _CHOICE, _ALIKE, _VERB, _DESCRIPTION, _ENOUGH = 3, 4, 3, 2, 1, 1, 2


class Match(NamedTuple):
    """An action, and the part of the sentence that speaks of it."""

    action: Action
    clause: str


def match_actions(text: str, actions: Sequence[Action], *, by_name: bool = False) -> list[Match]:
    """Return the calls a sentence asks for: one for each of its clauses that names an action.

    With `by_name`, the words of a description alone are not enough.
    """
    enough = _ENOUGH if not by_name else max(_ENOUGH, _NAME)
    matches: list[Match] = []
    for clause in _clauses(text):
        scored = [(_score(clause, action), action) for action in actions]
        score, best = max(scored, key=lambda each: each[0], default=(0, None))
        if best is not None and score >= enough:
            matches.append(Match(best, clause))
        elif matches:  # "note the milk and the eggs": the second half belongs to the first
            matches[-1] = Match(matches[-1].action, f"{matches[-1].clause} and {clause}")
    if matches:
        return matches
    scored = [(_score(text, action), action) for action in actions]
    score, best = max(scored, key=lambda each: each[0], default=(0, None))
    return [Match(best, text)] if best is not None and score >= enough else []


def example_for(action: Action) -> str:
    """Return a sentence that makes the demo model call this action."""
    required = required_of(action.parameters)
    told = [
        _example_value(name, schema)
        for name, schema in properties_of(action.parameters).items()
        if name in required
    ]
    return " ".join(filter(None, [title_of(action), *dict.fromkeys(told[:3])]))


def title_of(action: Action) -> str:
    """Return an action's name as a person would write it."""
    return " ".join(words(action.name)).capitalize()


def _clauses(text: str) -> list[str]:
    """Cut a sentence at `and`, commas and stops, but never inside quotes."""
    clauses: list[str] = []
    begin = 0
    for cut in _SEPARATOR.finditer(text):
        if cut[1] is None:
            clauses.append(text[begin : cut.start()])
            begin = cut.end()
    clauses.append(text[begin:])
    return [clause.strip() for clause in clauses if clause.strip()]


def _score(clause: str, action: Action) -> int:
    spoken = words(clause)
    meant = {_base(word) for word in spoken}
    named = [_base(word) for word in words(action.name)]
    telling = {_SAME.get(word, word) for word in named if word not in _VERBS} or set(named)
    score = 0
    for word in meant:
        if word in named:
            score += _VERB if word in _VERBS and telling != set(named) else _NAME
        elif word not in _VERBS and _SAME.get(word, word) in telling:
            score += _ALIKE
    described = {_base(word) for word in words(action.description)} - _SMALL - _VERBS
    score += _DESCRIPTION * min(2, len({w for w in meant if len(w) > 3} & described))
    return score + sum(
        _score_value(clause, spoken, name, schema)
        for name, schema in properties_of(action.parameters).items()
    )


def _score_value(clause: str, spoken: list[str], name: str, schema: Mapping[str, Any]) -> int:
    """Weigh whether a sentence holds a value only this property could take."""
    if wants_color(name, schema):
        return _COLOR if find_color(clause) else 0
    return _CHOICE if any(w in spoken for o in options_of(schema) for w in words(str(o))) else 0


def _base(word: str) -> str:
    """Drop the plural, so that notes are notes."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _example_value(name: str, schema: Mapping[str, Any]) -> str:
    if wants_color(name, schema):
        return "to teal"
    if options := options_of(schema):
        return f"to {options[-1]}"
    if name.lower() in ("city", "place", "location"):
        return "in Paris"
    if schema.get("type") in ("integer", "number"):
        return str(schema.get("minimum", 3))
    return '"water the plants"' if schema.get("type") == "string" else ""
