"""Check and complete the arguments that an application passes to constructors."""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from copilot_runtime.api.action import Action
from copilot_runtime.api.agent import Stage, StageFunction
from copilot_runtime.api.events import Events
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import ConfigurationFailed

T = TypeVar("T")
P = ParamSpec("P")


def check_list(
    name: str, value: object, example: str, kind: type[Any] = Collection
) -> Collection[object]:
    """Return the list. Raises `ConfigurationFailed` for another type, such as a single item."""
    if isinstance(value, kind) and not isinstance(value, str | bytes | Mapping):
        return cast("Collection[object]", value)
    raise ConfigurationFailed(
        f"{name} is {describe(value)}, and not a list.", hint=f"Write {name}=[{example}]."
    )


def check_function(name: str, value: object, parameters: Sequence[str]) -> None:
    """Raise `ConfigurationFailed` unless `value` is `None` or callable with these parameters."""
    if value is None:
        return
    if not callable(value):
        raise ConfigurationFailed(
            f"{name} is {describe(value)}, and not a function.",
            hint=f"Write {name}=function, without calling it.",
        )
    if not _accepts(value, parameters):
        raise ConfigurationFailed(
            f"{name} cannot be called with ({', '.join(parameters)}): "
            f"its parameters are {_list_parameters(value)}.",
            hint=f"Write def {name}({', '.join(parameters)}).",
        )


def check_stages(name: str, stages: object) -> None:
    """Raise `ConfigurationFailed` if `stages` is not a list of stages."""
    for stage in check_list(name, stages, name[:-1]):
        if isinstance(stage, type) and issubclass(stage, Stage):
            raise ConfigurationFailed(
                f"{name} has an item that is {describe(stage)}, and not an object of it.",
                hint=f"Write {name}=[{stage.__name__}(...)], with its arguments.",
            )
        if not callable(stage) or not _accepts(stage, ("events", "run")):
            raise ConfigurationFailed(
                f"{name} has an item that is {describe(stage)} and cannot be called with "
                "(events, run).",
                hint=f"Write async def {name[:-1]}(events, run). Topics and words that are "
                "refused are settings: Settings(guardrails={'deny': [...]}).",
            )


def _list_parameters(function: Callable[..., Any]) -> str:
    return f"({', '.join(inspect.signature(function).parameters)})"


def _accepts(function: Callable[..., Any], parameters: Sequence[str]) -> bool:
    """Return whether a function accepts this many arguments; `True` if it has no signature."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return True
    try:
        signature.bind(*parameters)
    except TypeError:
        return False
    return True


def check_actions(actions: object) -> None:
    """Raise `ConfigurationFailed` unless `actions` is a list, a function or an `ActionSource`."""
    if isinstance(actions, Action):
        raise ConfigurationFailed(
            f"actions is one action, {actions.name!r}, and not a list.",
            hint=f"Write actions=[{actions.name}].",
        )
    if hasattr(actions, "actions"):
        return
    if callable(actions):
        check_function("actions", actions, ("run",))
        return
    for item in check_list("actions", actions, "get_weather", Sequence):
        if isinstance(item, Action) and item.run and not _accepts(item.run, ("values", "context")):
            raise ConfigurationFailed(
                f"The run of the action {item.name!r} cannot be called with (arguments, context): "
                f"its parameters are {_list_parameters(item.run)}.",
                hint="Write action(function) for a function that takes the arguments by name.",
            )


def check_store(threads: object) -> None:
    """Raise `ConfigurationFailed` for a `Path`, which does not name a kind of store."""
    if isinstance(threads, Path):
        raise ConfigurationFailed(
            "threads is a path, and not a store.", hint=f"Write threads='sqlite:{threads}'."
        )


def check_mapping(name: str, value: object) -> None:
    """Raise `ConfigurationFailed` unless `value` is `None` or a mapping."""
    if value is not None and not isinstance(value, Mapping):
        raise ConfigurationFailed(
            f"{name} is {describe(value)}, and not a mapping.",
            hint=f"Write {name}={{'name': ...}}.",
        )


def check_items(
    name: str, values: Iterable[object], kind: type | tuple[type, ...], example: str
) -> None:
    """Raise `ConfigurationFailed` if an item of a list has another type than `kind`.

    The hint suggests `example(url)`, with the URL in the item; Node's configuration has objects.
    """
    for value in values:
        if not isinstance(value, kind):
            raise ConfigurationFailed(
                f"{name} has an item that is {describe(value)}.",
                hint=f"Write {name}=[{example}({find_url(value)!r})].",
            )


def find_url(value: object) -> str:
    """Return the URL in a string or in an object of Node's configuration, or a placeholder."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[object, object]", value)
        value = fields.get("url") or fields.get("endpoint")
    return value if isinstance(value, str) else "https://..."


def describe(value: object) -> str:
    """Return a noun phrase for the type of a value; not the value itself, which may be a key."""
    if isinstance(value, type):
        return f"the class {value.__name__!r}"
    article = "an" if type(value).__name__[0].lower() in "aeiou" else "a"
    return f"{article} {type(value).__name__}"


_REQUIRED = {
    "Adapter": ("adapter", "stream", "CopilotRuntime(OpenAIAdapter('gpt-4o'), actions=[...])"),
    "Agent": ("agent", "run", "agents={'weather': AguiAgent('https://...')}"),
    "ActionSource": ("source of actions", "actions", "actions=[mcp_actions(server)]"),
    "Bus": ("bus", "append", "bus=MemoryBus()"),
    "Stage": ("stage", "__call__", "stages=[stage]"),
    "ThreadStore": ("store of threads", "begin", "threads='sqlite:threads.db'"),
}
"""Interface name → noun for errors, required method, and an example."""


def complete(interface: type[T], part: object) -> T:
    """Return `part`, or a wrapper that adds the missing defaults of `interface`.

    The wrapper has the class name and all attributes of `part`. Raises `ConfigurationFailed` for a
    class in place of an instance, and for an object without the required method.
    """
    if isinstance(part, interface):
        return part
    noun, method, example = _REQUIRED.get(interface.__name__, ("part", "", ""))
    if isinstance(part, type) and (interface is not Stage or issubclass(part, interface)):
        raise ConfigurationFailed(
            f"The {noun} is the class {part.__name__!r}, and not an object of it.",
            hint=f"Write {part.__name__}(...), with its arguments.",
        )
    if method and not hasattr(part, method):
        raise ConfigurationFailed(
            f"The {noun} is of the type {type(part).__name__!r}, which has no method {method!r}.",
            hint=f"Write {example}, or give an object of yours that has it.",
        )
    names = tuple(name for name in dir(interface) if name[0] != "_" and hasattr(part, name))
    return _build_class(interface, type(part).__name__, names)(part)


def as_stage(stage: StageFunction) -> Stage:
    """Wrap a plain function as a stage."""
    return complete(Stage, stage)


@lru_cache(maxsize=256)
def _build_class(interface: type[T], name: str, names: tuple[str, ...]) -> Callable[[object], T]:
    members: dict[str, Any] = {name: _delegate(name) for name in names}
    if interface is Stage:
        members["__call__"] = _call_wrapped
    return cast("Callable[[object], T]", type(name, (_Wrapper, interface), members))


class _Wrapper:
    def __init__(self, wrapped: object) -> None:
        self.wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)


def _call_wrapped(wrapper: Any, events: Events, run: RunInput) -> Events:
    return wrapper.wrapped(events, run)


def _delegate(name: str) -> property:
    return property(lambda wrapper: getattr(wrapper.wrapped, name))


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
