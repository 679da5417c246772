"""Matches sentences to actions by their words, for the demo model."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from copilot_runtime.adapters.demo.arguments import (
    Schema,
    find_color,
    get_properties,
    is_color,
    split_words,
)
from copilot_runtime.api.action import Action
from copilot_runtime.base.jsonvalue import as_list

_SEPARATOR = re.compile(r'("[^"]*"|“[^”]*”)|(?:[;!?\n]|[.,](?=\s)|\b(?:and|then|also)\b)')
_VERBS = set(
    split_words(
        "add ask be call change check create delete do fetch find get give list load look make "
        "open put read remove run save search send set show switch tell turn update use write"
    )
)
_STOP_WORDS = set(
    split_words(
        "by could from have into please some that them then this want what when where which will "
        "with"
    )
)
_SYNONYMS = {
    **dict.fromkeys(("accent", "background", "colour"), "color"),
    **dict.fromkeys(("clock", "hour"), "time"),
    **dict.fromkeys(("reminder", "task"), "todo"),
    "dice": "roll",
    "memo": "note",
    "temperature": "weather",
}
_MIN_SCORE, _MIN_NAME_SCORE = 2, 3


class Match(NamedTuple):
    """An action, and the clause of the sentence that asks for it."""

    action: Action
    clause: str


def match_actions(text: str, actions: Sequence[Action], *, by_name: bool = False) -> list[Match]:
    """Return the calls that a sentence asks for, at most one for each of its clauses.

    With `by_name`, the words of a description alone are not enough.
    """
    threshold = _MIN_NAME_SCORE if by_name else _MIN_SCORE
    matches: list[Match] = []
    for clause in _split_clauses(text):
        if action := _find_best(clause, actions, threshold):
            matches.append(Match(action, clause))
        elif matches:  # "note the milk and the eggs": the second half belongs to the first
            matches[-1] = Match(matches[-1].action, f"{matches[-1].clause} and {clause}")
    if not matches and (action := _find_best(text, actions, threshold)):
        return [Match(action, text)]
    return matches


def build_example(action: Action) -> str:
    """Return a sentence that makes the demo model call this action."""
    required = as_list(action.parameters.get("required"))
    properties = get_properties(action.parameters).items()
    values = [_example_phrase(name, schema) for name, schema in properties if name in required]
    return " ".join(filter(None, [format_title(action), *dict.fromkeys(values[:3])]))


def format_title(action: Action) -> str:
    """Return an action's name as a person would write it."""
    return " ".join(split_words(action.name)).capitalize()


def _split_clauses(text: str) -> list[str]:
    """Cut a sentence at `and`, commas and stops, but never inside quotes."""
    clauses = _SEPARATOR.sub(lambda separator: separator[1] or "\0", text).split("\0")
    return [clause.strip() for clause in clauses if clause.strip()]


def _find_best(clause: str, actions: Sequence[Action], threshold: int) -> Action | None:
    best = max(actions, key=lambda action: _score(clause, action), default=None)
    return best if best and _score(clause, best) >= threshold else None


def _score(clause: str, action: Action) -> int:
    """Weigh the words that a clause shares with the action: nouns most, then values and verbs."""
    words, name = _normalize(clause), _normalize(action.name)
    nouns = name - _VERBS - _STOP_WORDS or name
    purpose = action.description.partition("\n\n")[0]  # the rest says when and how
    description = {word for word in _normalize(purpose) - _VERBS if len(word) > 3}
    values = get_properties(action.parameters).items()
    return (
        3 * len(words & nouns)
        + len(words & name & _VERBS - nouns)
        + min(2, len(words & description - _STOP_WORDS))
        + sum(_score_value(clause, each, schema) for each, schema in values)
    )


def _score_value(clause: str, name: str, schema: Schema) -> int:
    """Weigh whether a clause holds a value that only this property could take."""
    if is_color(name, schema):
        return 4 if find_color(clause) else 0
    options = [word for option in as_list(schema.get("enum")) for word in split_words(str(option))]
    return 3 if set(options) & set(split_words(clause)) else 0


def _normalize(text: str) -> set[str]:
    """Return the words of a text without plurals and synonyms."""
    singular = [re.sub(r"(?<=..[^s])s$", "", word) for word in split_words(text)]
    return {_SYNONYMS.get(word, word) for word in singular}


def _example_phrase(name: str, schema: Schema) -> str:
    if is_color(name, schema):
        return "to teal"
    if options := as_list(schema.get("enum")):
        return f"to {options[-1]}"
    if name.lower() in ("city", "place", "location"):
        return "in Paris"
    if schema.get("type") in ("integer", "number"):
        return str(schema.get("minimum", 3))
    return '"water the plants"' if schema.get("type") == "string" else ""
