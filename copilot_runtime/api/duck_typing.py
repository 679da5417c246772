"""Accept objects that have a method of an interface without inheriting from it."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, cast

from copilot_runtime.api.events import Events
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.api.stage import Stage, StageFunction
from copilot_runtime.base.errors import ConfigurationFailed

T = TypeVar("T")

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
            hint=f"Write {part.__name__}(...), with what it needs.",
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
