"""Creates an action from a Python function: its schema, its description, its execution."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import cleandoc
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, cast, overload

from copilot_runtime.actions.schema import Arguments, inspect_arguments
from copilot_runtime.api.action import Action, ActionContext
from copilot_runtime.api.argument_checks import describe
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import ConfigurationFailed

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionAction(Action, Generic[P, R]):
    """An action created from a function. It can be called as the function, for example in tests."""

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
    """Make a function an action that models can call: `@action` or `@action(name=…, timeout=…)`.

    Description and parameters are derived from the signature and the docstring. `parameters` is a
    JSON schema to send instead. `timeout` is in seconds. A parameter annotated `ActionContext`
    receives the context of the call. With `is_idempotent`, an interrupted call may be repeated. A
    sync function runs in a thread. The returned action can be called like the function.
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
    """Return the module and the qualified name of a function, for error messages."""
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


_GOOGLE_PARAMETERS = re.compile(r"(?:Args|Arguments|Parameters|Params|Keyword Args)\s*:\s*$")
_GOOGLE_SECTION = re.compile(
    r"(?:Returns?|Yields?|Raises|Examples?|Notes?|Warnings?|See Also)\s*:\s*$"
)
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:(?:\s+(.*))?$")
_REST_ENTRY = re.compile(
    r":(?:param|parameter|arg|argument|key)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$"
)
_REST_FIELD = re.compile(r":\w+[^:]*:")
_NUMPY_ENTRY = re.compile(r"\*{0,2}(\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_UNDERLINE = re.compile(r"-{3,}\s*$")


class Docstring(NamedTuple):
    """A description, and descriptions by parameter name."""

    description: str
    parameters: dict[str, str]


def parse_docstring(text: str | None) -> Docstring:
    """Read a docstring in Google, NumPy or reST style; anything else is plain text."""
    lines = cleandoc(text or "").splitlines()
    parameters: dict[str, str] = {}
    for read in (_google, _numpy, _rest):
        for name, words in read(lines):
            if joined := " ".join(" ".join(words).split()):
                parameters.setdefault(name, joined)
    return Docstring(_first_paragraph(lines), parameters)


def _first_paragraph(lines: list[str]) -> str:
    words: list[str] = []
    for number, line in enumerate(lines):
        if not line.strip() or _starts_section(lines, number):
            break
        words.append(line.strip())
    return " ".join(words)


def _starts_section(lines: list[str], number: int) -> bool:
    line = lines[number]
    return bool(
        _GOOGLE_PARAMETERS.match(line)
        or _GOOGLE_SECTION.match(line)
        or _REST_FIELD.match(line)
        or (number + 1 < len(lines) and _UNDERLINE.match(lines[number + 1]))
    )


def _google(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """`Args:`, then one indented `name (type): words` per parameter."""
    for number, line in enumerate(lines):
        if _GOOGLE_PARAMETERS.match(line):
            yield from _entries(_body(lines[number + 1 :], indented=True), _GOOGLE_ENTRY)


def _numpy(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """`Parameters`, an underline, then `name : type` with indented words below."""
    for number in range(len(lines) - 1):
        title = lines[number].strip()
        if title in ("Parameters", "Other Parameters") and _UNDERLINE.match(lines[number + 1]):
            body = _body(lines[number + 2 :], indented=False)
            for names, words in _entries(body, _NUMPY_ENTRY):
                for name in names.split(","):
                    yield name.strip().lstrip("*"), words


def _rest(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """`:param type name: words`, going on in indented lines."""
    for number, line in enumerate(lines):
        if entry := _REST_ENTRY.match(line):
            words = [entry[2]]
            for more in lines[number + 1 :]:
                if not more[:1].isspace():
                    break
                words.append(more)
            yield entry[1], words


def _body(lines: list[str], *, indented: bool) -> list[str]:
    """Return the lines of a section, without the indentation they share."""
    body: list[str] = []
    for number, line in enumerate(lines):
        outside = bool(line.strip()) and not line[0].isspace()
        if outside and (indented or _starts_section(lines, number)):
            break
        body.append(line)
    return cleandoc("\n" + "\n".join(body)).splitlines()


def _entries(body: list[str], entry: re.Pattern[str]) -> Iterator[tuple[str, list[str]]]:
    """Group a section's lines: an unindented entry, and the indented lines after it."""
    name, words = "", list[str]()
    for line in body:
        if line[:1].isspace() or not line.strip():
            words.append(line)
        elif match := entry.match(line):
            if name:
                yield name, words
            name = match[1]
            words = [match[2] or ""] if match.re.groups > 1 else []
    if name:
        yield name, words
