"""Accept objects that have a method of an interface without inheriting from it."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, cast

from copilot_runtime.interfaces import Events, RunInput, Stage, StageFunction

T = TypeVar("T")


def complete(interface: type[T], part: object) -> T:
    """Return an object with everything of an interface: of `part`, or else by default.

    It has the class name of `part`, and all its attributes.
    """
    if isinstance(part, interface):
        return part
    names = tuple(name for name in dir(interface) if name[0] != "_" and hasattr(part, name))
    return _build_class(interface, type(part).__name__, names)(part)


def as_stage(stage: StageFunction) -> Stage:
    """Return a stage for a plain function."""
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
