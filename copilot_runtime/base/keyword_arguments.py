"""Suggest the right keyword argument for a wrong one, also for names of the Node runtime."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

Constructor = Callable[Concatenate[T, P], None]


def explain_names(
    elsewhere: Mapping[str, str] | None = None,
    list_options: Callable[[], Sequence[str]] = tuple,
) -> Callable[[Constructor[T, P]], Constructor[T, P]]:
    """Return a decorator for constructors that explains wrong arguments.

    It raises `TypeError` with a suggestion. `elsewhere` maps names that are not arguments here to
    the code to write instead. `list_options` returns names that are taken as `**options`.
    """

    def decorate(init: Constructor[T, P]) -> Constructor[T, P]:
        own = inspect.signature(init).parameters
        most = sum(one.kind is one.POSITIONAL_OR_KEYWORD for one in own.values()) - 1

        @wraps(init)
        def check(self: T, /, *args: P.args, **arguments: P.kwargs) -> None:
            for name in arguments:
                if name not in own and name not in list_options():
                    names = [*_list_names(type(self)), *list_options()]
                    raise TypeError(_explain_name(type(self), name, names, elsewhere or {}))
            if len(args) > most:
                raise TypeError(_explain_position(type(self), len(args)))
            init(self, *args, **arguments)

        return check

    return decorate


def _list_names(kind: type) -> Sequence[str]:
    parameters = inspect.signature(kind).parameters.values()
    return [one.name for one in parameters if one.kind is not one.VAR_KEYWORD]


def _explain_name(kind: type, name: str, names: Sequence[str], elsewhere: Mapping[str, str]) -> str:
    in_snake_case = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    if in_snake_case in names:
        way_out = f"Did you mean {in_snake_case!r}?"
    elif in_snake_case in elsewhere:
        way_out = f"Write {elsewhere[in_snake_case]}."
    elif close := get_close_matches(in_snake_case, names, n=1):
        way_out = f"Did you mean {close[0]!r}?"
    else:
        way_out = f"Known: {', '.join(names)}."
    return f"{kind.__name__} has no argument {name!r}. {way_out}"


def _explain_position(kind: type, count: int) -> str:
    parameters = inspect.signature(kind).parameters.values()
    first = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    named = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
    return (
        f"{kind.__name__} takes only {', '.join(first)} without a name, and {count} arguments have "
        f"none. Give the others by name: {', '.join(named)}."
    )
