"""Convert operations in the results of tools into surfaces."""

import logging
from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

from copilot_runtime.api.events import ActionExecutionResult, Activity
from copilot_runtime.base.jsonvalue import as_list, as_object, parse_text
from copilot_runtime.extensions.generative_ui.a2ui.operations import (
    OPERATIONS,
    SURFACE,
    Operation,
    check_operations,
    group_by_surface,
)
from copilot_runtime.extensions.generative_ui.a2ui.validation import find_cycle
from copilot_runtime.extensions.generative_ui.options import A2ui

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
