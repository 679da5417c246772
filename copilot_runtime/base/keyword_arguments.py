"""Suggest the right keyword argument for a wrong one, also for names of the Node runtime."""

import inspect
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

Constructor = Callable[Concatenate[T, P], None]


def explain_names(
    elsewhere: Mapping[str, str] | None = None,
) -> Callable[[Constructor[T, P]], Constructor[T, P]]:
    """Return a decorator for constructors that explains wrong arguments.

    It raises `TypeError` with a suggestion. `elsewhere` maps names that are not arguments here to
    the code to write instead.
    """

    def decorate(init: Constructor[T, P]) -> Constructor[T, P]:
        own = inspect.signature(init).parameters
        most = sum(one.kind is one.POSITIONAL_OR_KEYWORD for one in own.values()) - 1

        @wraps(init)
        def check(self: T, /, *args: P.args, **arguments: P.kwargs) -> None:
            for name in arguments:
                if name not in own:
                    raise TypeError(_explain_name(type(self), name, elsewhere or {}))
            if len(args) > most:
                raise TypeError(_explain_position(type(self), len(args)))
            init(self, *args, **arguments)

        return check

    return decorate


def _explain_name(kind: type, name: str, elsewhere: Mapping[str, str]) -> str:
    names = [*inspect.signature(kind).parameters]
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
