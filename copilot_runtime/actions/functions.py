"""Make an action of a Python function."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from copilot_runtime.actions.docstring import parse_docstring
from copilot_runtime.actions.schema import Arguments, inspect_arguments
from copilot_runtime.api.action import Action, ActionContext
from copilot_runtime.app.argument_checks import describe
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import ConfigurationFailed

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionAction(Action, Generic[P, R]):
    """An action made of a function. Called, it is that function, as in a test of it alone."""

    function: Callable[P, R] = field(repr=False)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.function)


@overload
def action(function: Callable[P, R], /) -> FunctionAction[P, R]: ...


@overload
def action(
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    return_direct: bool = False,
    is_idempotent: bool = False,
) -> "Callable[[Callable[P, R]], FunctionAction[P, R]]": ...


def action(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    return_direct: bool = False,
    is_idempotent: bool = False,
) -> FunctionAction[..., Any] | Callable[[Callable[..., Any]], FunctionAction[..., Any]]:
    """Let a model call a function: `@action` or `@action(name=…, timeout=…)`.

    Description and parameters come from the signature and the docstring. `parameters` is a
    JSON schema to send instead. `timeout` is in seconds. A parameter annotated
    `ActionContext` gets the context of the call. With `is_idempotent`, a call that was interrupted
    may be made again. A sync function runs in a thread.
    The result can be called as the function can.
    """

    def build(function: Callable[..., Any]) -> FunctionAction[..., Any]:
        result = _build_action(function, name, description, parameters, timeout, return_direct)
        return replace(result, is_idempotent=True) if is_idempotent else result

    return build if function is None else build(function)


def as_actions(items: Iterable[Action | Callable[..., Any]]) -> list[Action]:
    """Return an action for each item. Raises `ConfigurationFailed` when two have one name."""
    actions: dict[str, Action] = {}
    for item in items:
        new = item if isinstance(item, Action) else action(item)
        if other := actions.get(new.name):
            raise ConfigurationFailed(
                f"Two actions are named {new.name!r}: {_origin(other)} and {_origin(new)}.",
                hint="Give one of them another name: @action(name=...).",
            )
        actions[new.name] = new
    return [*actions.values()]


class _Function:
    """Runs a function with validated arguments."""

    def __init__(self, function: Callable[..., Any], arguments: Arguments) -> None:
        self.function = function
        self.arguments = arguments

    async def __call__(self, values: Mapping[str, Any], context: ActionContext) -> Any:
        return await call(self.function, **self.arguments.validate(values, context))


def _build_action(
    function: Callable[..., Any],
    name: str | None,
    description: str | None,
    parameters: Mapping[str, Any] | None,
    timeout: float | None,
    return_direct: bool,
) -> FunctionAction[..., Any]:
    if isinstance(function, FunctionAction):
        function = cast("FunctionAction[..., Any]", function).function
    where = qualified_name(function)
    if not callable(cast("Any", function)):
        raise ConfigurationFailed(
            f"An action is a function; {describe(function)} ({where}) is not.",
            hint="Write actions=[get_weather], with the functions themselves and without calling "
            "them, and @action(name='...') for a name.",
        )
    name = _name_of(function) if name is None else name
    if not _NAME.fullmatch(name):
        raise ConfigurationFailed(
            f"{name!r} cannot be the name of an action ({where}): models take letters, digits,"
            " _ and -, at most 64 of them.",
            hint="Give it a name: @action(name=...).",
        )
    if timeout is not None and not timeout > 0:
        raise ConfigurationFailed(f"The timeout of {where} must be more than 0 s, not {timeout!r}.")
    doc = parse_docstring(_doc_of(function))
    arguments = inspect_arguments(function, where, doc.parameters, parameters)
    return FunctionAction(
        name=name,
        description=doc.description if description is None else description,
        parameters=arguments.schema,
        function=function,
        run=_Function(function, arguments),
        timeout=timeout,
        return_direct=return_direct,
    )


def qualified_name(function: Any) -> str:
    """Return where a function is from, for a person who looks for it."""
    function = _bare(function)
    if not hasattr(function, "__qualname__"):
        function = cast("Any", type(function))
    return f"{getattr(function, '__module__', None)}.{function.__qualname__}"


def _origin(action: Action) -> str:
    run = action.run
    if run is None:
        return "an Action without run"
    return (
        qualified_name(run.function)
        if isinstance(run, _Function)
        else f"an Action ({qualified_name(run)})"
    )


def _bare(function: Any) -> Any:
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    return inspect.unwrap(function) if callable(function) else function


def _name_of(function: Any) -> str:
    function = _bare(function)
    return getattr(function, "__name__", type(function).__name__)


def _doc_of(function: Any) -> str | None:
    function = _bare(function)
    if inspect.isroutine(function) or inspect.isclass(function):
        return function.__doc__
    return type(function).__call__.__doc__ or type(function).__doc__
