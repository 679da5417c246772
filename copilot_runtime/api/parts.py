"""The parts of a runtime, found by their type."""

from typing import Any, TypeVar

from copilot_runtime.base.errors import ConfigurationFailed

T = TypeVar("T")


class Parts:
    """The objects that extensions offer to each other, to transports and to the program.

    Each is registered under a type, usually its own class: `parts.find(Kind)` returns the one
    of this runtime, typed, without anything in between that names it.
    """

    def __init__(self) -> None:
        self._parts: dict[type[Any], Any] = {}

    def add(self, kind: type[T], part: T) -> None:
        """Register a part under a type. A later part of the same type takes its place."""
        self._parts[kind] = part

    def find(self, kind: type[T]) -> T | None:
        """Return the part of a type, or `None` if no extension offers one."""
        return self._parts.get(kind)

    def get(self, kind: type[T]) -> T:
        """Return the part of a type. Raises `ConfigurationFailed` if no extension offers one."""
        if (part := self.find(kind)) is None:
            raise ConfigurationFailed(
                f"This runtime has no {kind.__name__}.",
                hint="Enable the extension that offers it, in the settings or in the program.",
            )
        return part
