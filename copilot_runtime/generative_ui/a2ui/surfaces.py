"""Turns the arguments of a call that renders a surface into the surface, while they come."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from copilot_runtime.a2ui.operations import (
    BASIC_CATALOG,
    OPERATIONS,
    SURFACE,
    Operation,
    create_surface,
    update_components,
    update_data_model,
)
from copilot_runtime.a2ui.validation import Problem, validate_components
from copilot_runtime.events import Activity
from copilot_runtime.generative_ui.options import A2ui
from copilot_runtime.jsonstream import JsonPart, JsonReader
from copilot_runtime.jsonvalue import JsonObject

_TOKENS = 20
"""Tokens after which a page is told again how far a surface is."""

_PATHS = (("*",), ("data", "*", "*"))
"""What is looked at of the arguments: all keys, and the items of each list of the data."""

_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


class Surface:
    """One message of a page that surfaces are drawn in: of one call, or of several attempts."""

    def __init__(self, key: str, options: A2ui) -> None:
        self.id = f"{SURFACE}-{key}"
        self._options = options
        self.rejections = 0
        """Attempts whose components cannot be drawn."""
        self.is_painted = False
        self.is_failed = False

    @property
    def is_retrying(self) -> bool:
        """Whether the page waits for another attempt."""
        return self.rejections > 0 and not self.is_painted

    def show_progress(self, tokens: int | None = None) -> Activity:
        """Return the state in which a surface is written, with the tokens so far."""
        content: JsonObject = {"status": "building"}
        if tokens is not None:
            content["progressTokens"] = tokens
        return self._build(content)

    def show_operations(self, operations: Sequence[Operation]) -> Activity:
        """Return the surface."""
        self.is_painted = True
        return Activity(
            message_id=self.id, activity_type=SURFACE, content={OPERATIONS: [*operations]}
        )

    def reject(self, problems: Sequence[Problem]) -> Activity:
        """Return the state in which the page waits for another attempt."""
        self.rejections += 1
        most = self._options.recovery.max_attempts
        return self._build(
            {
                "status": "retrying",
                "attempt": min(self.rejections + 1, most),
                "maxAttempts": most,
                "errors": [dict(one._asdict()) for one in problems],
            }
        )

    def fail(self, error: str, attempts: Any = None) -> Activity:
        """Return the state of a surface that comes to nothing."""
        self.is_failed = True
        content: JsonObject = {
            "status": "failed",
            "error": error,
            "maxAttempts": self._options.recovery.max_attempts,
        }
        if attempts is not None:
            content["attempts"] = attempts
        return self._build(content)

    def _build(self, content: JsonObject) -> Activity:
        exposure = self._options.recovery.debug_exposure
        if exposure is not None:
            content["debugExposure"] = exposure
        return Activity(message_id=self.id, activity_type=SURFACE, content=content)


class Render:
    """One call that renders a surface.

    `catalog_id` is that of the operator or the page, empty if neither names one; `catalog` is what
    components are compared with.
    """

    def __init__(
        self,
        surface: Surface,
        options: A2ui,
        *,
        catalog_id: str = "",
        catalog: Mapping[str, Any] | None = None,
    ) -> None:
        self.surface = surface
        self.problems: Sequence[Problem] = ()
        """Why its components cannot be drawn."""
        self.is_painted = False
        self._options = options
        self._catalog_id = catalog_id
        self._catalog = catalog
        self._reader = JsonReader(_PATHS)
        self._size = 0
        self._reported_tokens = 0
        self._fields: dict[str, Any] = {}
        """The arguments that are complete."""
        self._items: dict[str, list[Any]] = {}
        """The complete items of the lists of the data."""
        self._shown_items = 0

    @property
    def surface_id(self) -> str:
        """The id that the model gave; empty as long as it has given none."""
        value = self._fields.get("surfaceId")
        return value if isinstance(value, str) else ""

    @property
    def error(self) -> str:
        """Why nothing can be drawn, in one sentence; empty for what has been drawn."""
        if self.is_painted:
            return ""
        if self.problems:
            return self.problems[0].message
        if self._reader.error is not None:
            return f"The arguments are no JSON: {self._reader.error}"
        if not self._reader.is_complete:
            return "The arguments are not complete."
        missing = [name for name in ("surfaceId", "components") if not self._fields.get(name)]
        return f"The arguments have no {' and no '.join(missing)}." if missing else ""

    def feed(self, delta: str) -> Iterator[Activity]:
        """Yield what further arguments change of the surface."""
        self._size += len(delta) + len(_ASTRAL.findall(delta))
        if self.problems or self._size > self._options.max_bytes:
            return
        if (tokens := self._count_tokens()) is not None:
            yield self.surface.show_progress(tokens)
        for part in self._reader.feed(delta):
            if part.kind == "end":
                yield from self._take(part)

    def _count_tokens(self) -> int | None:
        """Return the tokens so far if the page should be told, as JavaScript rounds them."""
        if self.is_painted or self.surface.is_retrying:
            return None
        tokens = (self._size + 2) // 4
        if tokens - self._reported_tokens < _TOKENS:
            return None
        self._reported_tokens = tokens
        return tokens if self._options.recovery.show_progress_tokens else None

    def _take(self, part: JsonPart) -> Iterator[Activity]:
        match part.path:
            case (str(name),):
                self._fields[name] = part.value
                if name == "components":
                    self.problems = validate_components(part.value, self._catalog)
                    if self.problems:
                        yield self.surface.reject(self.problems)
                        return
                if name in ("surfaceId", "components", "data"):
                    yield from self._paint()
            case ("data", str(name), int()):
                items = self._items.setdefault(name, [])
                items.append(part.value)
                if name == self._repeated_key():
                    count = len(items)
                    # each page gets the whole list again: not for every item of a long one
                    if count - self._shown_items >= max(1, count // 32):
                        yield from self._paint()
            case _:
                pass

    def _paint(self) -> Iterator[Activity]:
        components = self._fields.get("components")
        if not self.surface_id or components is None or self.problems:
            return
        operations = [
            create_surface(self.surface_id, self._choose_catalog()),
            update_components(self.surface_id, components),
        ]
        if (data := self._find_data()) is not None:
            operations.append(update_data_model(self.surface_id, data))
        self.is_painted = True
        yield self.surface.show_operations(operations)

    def _find_data(self) -> JsonObject | None:
        """Return the data, or the items so far of the list that components repeat."""
        if "data" in self._fields:
            data = self._fields["data"]
            return cast(JsonObject, data) if isinstance(data, dict) else None
        name = self._repeated_key()
        items = self._items.get(name)
        if not items:
            return None
        self._shown_items = len(items)
        return {name: [*items]}

    def _repeated_key(self) -> str:
        """Return the key of the list whose items the first template is repeated for."""
        components: Sequence[Any] = self._fields.get("components") or ()
        for component in components:
            if not isinstance(component, dict):
                continue
            children = cast(JsonObject, component).get("children")
            if isinstance(children, dict) and isinstance(path := children.get("path"), str):
                return path.lstrip("/")
        return "items"

    def _choose_catalog(self) -> str:
        streamed = self._fields.get("catalogId")
        if self._catalog_id:
            return self._catalog_id
        if isinstance(streamed, str) and streamed and streamed != "basic":
            return streamed
        return BASIC_CATALOG
