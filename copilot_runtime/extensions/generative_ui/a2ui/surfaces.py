"""Convert the streamed arguments of a rendering tool call, and results of tools, into surfaces."""

import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, cast

from copilot_runtime.api.events import ActionExecutionResult, Activity
from copilot_runtime.base.jsonstream import JsonPart, JsonReader
from copilot_runtime.base.jsonvalue import JsonObject, as_list, as_object, as_text, parse_text
from copilot_runtime.extensions.generative_ui.a2ui.operations import (
    BASIC_CATALOG,
    OPERATIONS,
    SURFACE,
    Operation,
    Problem,
    check_operations,
    create_surface,
    find_cycle,
    group_by_surface,
    update_components,
    update_data_model,
    validate_components,
)
from copilot_runtime.extensions.generative_ui.options import A2ui

_TOKENS = 20
"""Number of tokens between two progress updates."""

_ITEMS = 64
"""A long list is redrawn once it has grown by 1/64 of its length."""

_SPARSE = 20_000
"""A list of n items is redrawn once n² / 20,000 were added, as each update contains all of them."""

_PATHS = (("*",), ("data", "*", "*"))
"""JSON paths that are read from the arguments: all keys, and the items of each list of the data."""

_ASTRAL = re.compile("[\U00010000-\U0010ffff]")

_END_OF_VALUE = re.compile(r'["}\]]')
_END_OF_OBJECT = re.compile(r"[}\]]")


class Surface:
    """A message in which surfaces are drawn, for one call or for several attempts."""

    def __init__(self, key: str, options: A2ui) -> None:
        self.id = f"{SURFACE}-{key}"
        self.key = key
        self._options = options
        self._attempts = 0
        self._reported_tokens = 0
        self.is_retrying = False
        """`True` while the frontend waits for another attempt."""
        self.is_painted = False
        """`True` if the frontend displays a surface."""
        self.rejection = ""
        """The first problem of the last attempt, as a sentence."""
        self.is_failed = False

    def begin_attempt(self) -> Activity | None:
        """Return the state `building`, or `None` if the frontend waits for a retry already."""
        self._attempts += 1
        self._reported_tokens = 0
        self.is_failed = False
        if self.is_retrying:
            return None
        self.is_painted = False
        return self._build({"status": "building"})

    def show_progress(self, tokens: int) -> Activity | None:
        """Return the state with the number of tokens, or `None` if it has barely changed."""
        if not self._options.recovery.show_progress_tokens or self.is_retrying:
            return None
        if tokens - self._reported_tokens < _TOKENS:
            return None
        self._reported_tokens = tokens
        return self._build({"status": "building", "progressTokens": tokens})

    def show_operations(self, operations: Sequence[Operation]) -> Activity:
        """Return the activity that draws the surface."""
        self.is_painted, self.is_retrying = True, False
        return Activity(
            message_id=self.id, activity_type=SURFACE, content={OPERATIONS: [*operations]}
        )

    def reject(self, problems: Sequence[Problem]) -> Activity:
        """Return the state in which the frontend waits for another attempt."""
        self.is_painted, self.is_retrying = False, True
        self.rejection = problems[0].message
        self._reported_tokens = 0
        most = self._options.recovery.max_attempts
        return self._build(
            {
                "status": "retrying",
                "attempt": min(self._attempts + 1, most),
                "maxAttempts": most,
                "errors": [dict(one._asdict()) for one in problems],
            }
        )

    def fail(self, error: str, attempts: Any = None) -> Activity:
        """Return the state of a failed surface, after the `attempts` of an agent."""
        self.is_failed, self.is_retrying = True, False
        content: JsonObject = {"status": "failed", "error": error}
        most = self._options.recovery.max_attempts
        if attempts is not None:
            content["attempts"] = attempts
            most = len(as_list(attempts)) or most
        return self._build({**content, "maxAttempts": most})

    def _build(self, content: JsonObject) -> Activity:
        exposure = self._options.recovery.debug_exposure
        if exposure is not None:
            content["debugExposure"] = exposure
        return Activity(message_id=self.id, activity_type=SURFACE, content=content)


class Render:
    """One rendering tool call.

    `catalog_id` is that of the operator or the frontend, or empty; components are validated against
    `catalog`.
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
        """The reasons why its components cannot be drawn."""
        self.is_painted = False
        self._options = options
        self._catalog_id = catalog_id
        self._catalog = catalog
        self._reader = JsonReader(_PATHS, lags=True)
        self._size = 0
        self._fields: dict[str, Any] = {}
        """The complete arguments."""
        self._items: dict[str, list[Any]] = {}
        """The complete items of the lists in the data."""
        self._counts: dict[str, int] = {}
        """The number of drawable items of each list: up to the last object, as in Node."""
        self._shown_items = 0
        self._has_data = False
        """`True` if all of the data has been sent to the frontend."""

    @property
    def surface_id(self) -> str:
        """The surface identifier in the arguments; empty while it is unknown."""
        value = self._fields.get("surfaceId")
        return value if isinstance(value, str) else ""

    @property
    def break_off(self) -> str:
        """The reason why the arguments are incomplete, as a sentence; empty if complete."""
        if self._reader.is_complete:
            return ""
        if self._reader.error is not None:
            return f"The arguments are no JSON: {self._reader.error}"
        if self._size > self._options.max_bytes:
            return f"The arguments are longer than {self._options.max_bytes} characters."
        return "The arguments are not complete."

    @property
    def error(self) -> str:
        """The reason why nothing can be drawn, as a sentence; empty if the surface is drawn."""
        if self.is_painted:
            return ""
        if self.problems:
            return self.problems[0].message
        if self.break_off:
            return self.break_off
        missing = [name for name in ("surfaceId", "components") if not self._fields.get(name)]
        return f"The arguments have no {' and no '.join(missing)}." if missing else ""

    def feed(self, delta: str) -> Iterator[Activity]:
        """Yield the updates of the surface for a chunk of the arguments."""
        self._size += len(delta) + len(_ASTRAL.findall(delta))
        if self.problems or self._size > self._options.max_bytes:
            return
        if not self.is_painted:
            # rounds like JavaScript
            progress = self.surface.show_progress((self._size + 2) // 4)
            if progress is not None:
                yield progress
        for part in self._reader.feed(delta):
            if part.kind == "end":
                self._take(part)
        if self.surface_id and _END_OF_VALUE.search(delta):
            yield from self._draw(has_end=_END_OF_OBJECT.search(delta) is not None)

    def _take(self, part: JsonPart) -> None:
        match part.path:
            case ("surfaceId" | "catalogId",) if not isinstance(part.value, str):
                pass
            case (str(name),):
                self._fields.setdefault(name, part.value)
            case ("data", str(name), int()):
                items = self._items.setdefault(name, [])
                items.append(part.value)
                if isinstance(part.value, dict | bool | None):
                    self._counts[name] = len(items)
            case _:
                pass

    def _draw(self, *, has_end: bool) -> Iterator[Activity]:
        """Yield the surface as far as it is known, and finally with all of its data."""
        is_first = not self.is_painted
        if is_first:
            if "components" not in self._fields:
                return
            self.problems = validate_components(self._fields["components"], self._catalog)
            if self.problems:
                yield self.surface.reject(self.problems)
                return
            self.is_painted = True
        items = self._find_items()
        if is_first or items is not None:
            yield self._paint(items)
        data = self._fields.get("data")
        if has_end and not self._has_data and isinstance(data, dict):
            self._has_data = True
            yield self._paint(cast(JsonObject, data))

    def _paint(self, data: JsonObject | None) -> Activity:
        operations = [
            create_surface(self.surface_id, self._choose_catalog()),
            update_components(self.surface_id, self._fields["components"]),
        ]
        if data is not None:
            operations.append(update_data_model(self.surface_id, data))
        return self.surface.show_operations(operations)

    def _find_items(self) -> JsonObject | None:
        """Return the items of the repeated list, or `None` if there are too few new ones."""
        names = [*self._fields]
        if self._has_data or "data" in names[: names.index("components")]:
            return None
        name = self._repeated_key()
        count = self._counts.get(name, 0)
        # every update contains the whole list, so a long list is not updated for each item
        if count - self._shown_items < max(1, count // _ITEMS, count**2 // _SPARSE):
            return None
        self._shown_items = count
        return {name: self._items[name][:count]}

    def _repeated_key(self) -> str:
        """Return the key of the list that the first template repeats."""
        components: Sequence[Any] = self._fields.get("components") or ()
        for component in components:
            if not isinstance(component, dict):
                continue
            children = cast(JsonObject, component).get("children")
            if isinstance(children, dict) and (path := as_text(children.get("path"))):
                return path.removeprefix("/")
        return "items"

    def _choose_catalog(self) -> str:
        streamed = self._fields.get("catalogId")
        if self._catalog_id:
            return self._catalog_id
        if isinstance(streamed, str) and streamed and streamed != "basic":
            return streamed
        return BASIC_CATALOG


logger = logging.getLogger(__name__)

EXHAUSTED = "a2ui_recovery_exhausted"
"""The result code of an agent that has given up repairing a surface."""


def draw_result(
    result: ActionExecutionResult,
    options: A2ui,
    place: str = "",
    streamed_ids: Collection[str] = (),
) -> Iterator[Activity]:
    """Yield the surfaces of a result: an object with operations, possibly JSON-encoded twice.

    They are drawn in the message of the call `place`, or of the call itself. Surfaces in
    `streamed_ids` are already drawn. Operations that cannot be drawn yield a failed surface, and a
    warning is logged.
    """
    text = result.result
    place = place or result.call_id
    key = f"{SURFACE}-{place}"
    if len(text.encode("utf-8", "surrogatepass")) > options.max_bytes:
        error = f"The result is longer than {options.max_bytes} bytes."
        yield _fail(key, {"error": error}, result, options)
        return
    value = as_object(parse_text(parse_text(text)))
    operations = [one for one in as_list(value.get(OPERATIONS)) if isinstance(one, dict)]
    if not operations:
        return
    if (problem := check_operations(operations, options.max_operations)) is not None:
        yield _fail(key, {"error": problem}, result, options)
        return
    found = group_by_surface(cast("list[Operation]", operations))
    for id, items in found.items():
        components = (one.get("updateComponents", {}).get("components", ()) for one in items)
        # a later update of a component replaces an earlier one
        latest = {part["id"]: part for some in components for part in some}
        if (cycle := find_cycle(latest.values())) is not None:
            problem = f"The component {cycle[:100]!r} of the surface {id[:100]!r} is inside itself."
            yield _fail(key, {"error": problem}, result, options)
            return
    surfaces = {id: items for id, items in found.items() if id not in streamed_ids}
    for surface, items in surfaces.items():
        identity = key if len(surfaces) == 1 else f"{SURFACE}-{surface}-{place}"
        yield Activity(message_id=identity, activity_type=SURFACE, content={OPERATIONS: items})


def _fail(
    key: str, fields: Mapping[str, Any], result: ActionExecutionResult, options: A2ui
) -> Activity:
    logger.warning("The page cannot draw the result of %r: %s", result.name, fields.get("error"))
    recovery = options.recovery
    content = {"status": "failed", **fields, "maxAttempts": recovery.max_attempts}
    if recovery.debug_exposure is not None:
        content["debugExposure"] = recovery.debug_exposure
    return Activity(message_id=key, activity_type=SURFACE, content=content)
