"""Collects the actions of a run from all sources: functions, servers and the browser."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Literal, cast, get_args

import orjson

from copilot_runtime.api.action import Action, ActionSource, new_action
from copilot_runtime.api.argument_checks import complete
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.concurrency import call, capture_result, is_being_cancelled

Available = Literal["enabled", "remote", "disabled"]

Actions = Sequence[Action | Callable[..., Any]]
"""`Action` values and functions, mixed."""

Source = Actions | Callable[[RunInput], Actions | Awaitable[Actions]] | ActionSource
"""A list, a function of the request (sync or async), or an object with such a method."""

logger = logging.getLogger(__name__)


def parse_frontend_action(
    name: str, description: str, json_schema: str, available: str = "enabled"
) -> Action:
    """Parse an action of the browser; with an unreadable schema, it has no parameters."""
    if available not in get_args(Available):
        logger.warning("The browser action %r is %r; it is not offered.", name, available)
        available = "disabled"
    return new_action(
        name=name,
        description=description,
        parameters=_parameters(name, json_schema),
        available=cast("Available", available),
    )


def select_actions(
    server: Sequence[Action], frontend: Sequence[Action], *, for_agent: bool
) -> Sequence[Action]:
    """Return the available actions: the server's, then the browser's, one per name."""
    offered = ("enabled", "remote") if for_agent else ("enabled",)
    return _deduplicate(
        (action for action in (*server, *frontend) if action.available in offered),
        "There are several actions %r; the first one is used.",
    )


class ActionList(ActionSource):
    """Actions that are the same for every run."""

    def __init__(self, actions: Sequence[Action]) -> None:
        self.ready = actions

    async def actions(self, run: RunInput) -> Sequence[Action]:  # noqa: ARG002
        return self.ready


class ActionFunction(ActionSource):
    """Actions that a function of the run returns."""

    def __init__(self, function: Callable[[RunInput], Any]) -> None:
        self.function = function

    async def actions(self, run: RunInput) -> Sequence[Action]:
        return await call(self.function, run)


def as_sources(actions: Source) -> list[ActionSource]:
    """Return the action sources for an argument, such as a list of functions and sources.

    The actions of a list are created at once, so that an invalid one is an error at startup.
    """
    if not isinstance(actions, Sequence):
        return [_as_source(actions)]
    own = [item for item in actions if not hasattr(item, "actions")]
    others = [
        _as_source(cast("ActionSource", item)) for item in actions if hasattr(item, "actions")
    ]
    return [ActionList(_as_actions(own)), *others] if own else others


async def gather_actions(
    sources: Sequence[ActionSource], run: RunInput, *, timeout: float = 30
) -> list[Action]:
    """Return the actions of all sources for this run; a failed source is logged and skipped.

    `timeout` is in seconds, for each source.
    """
    ready = [source.ready for source in sources if isinstance(source, ActionList)]
    if len(ready) == len(sources):  # no source that could be waited for
        results = ready
    else:
        results = await asyncio.gather(*(_query(source, run, timeout) for source in sources))
    return _deduplicate(
        chain.from_iterable(results), "Two sources have an action %r; the first one is used."
    )


def _parameters(name: str, json_schema: str) -> dict[str, Any]:
    try:
        schema = orjson.loads(json_schema or "{}")
    except ValueError as error:
        logger.warning("The schema of the browser action %r is not JSON: %s", name, error)
        schema = {}
    if not isinstance(schema, dict):
        logger.warning("The schema of the browser action %r is not a JSON object.", name)
        schema = {}
    # providers reject an object schema without `properties`
    return {"type": "object", "properties": {}, **cast("dict[str, Any]", schema)}


def _as_source(source: ActionSource | Callable[[RunInput], Any]) -> ActionSource:
    if hasattr(source, "actions"):
        return complete(ActionSource, source)
    return ActionFunction(cast("Callable[[RunInput], Any]", source))


def _deduplicate(actions: Iterable[Action], warning: str) -> list[Action]:
    """Return the first action of each name; log `warning` with the name for each duplicate."""
    found: dict[str, Action] = {}
    for action in actions:
        if action.name in found:
            logger.warning(warning, action.name)
        else:
            found[action.name] = action
    return [*found.values()]


async def _query(source: ActionSource, run: RunInput, timeout: float) -> Sequence[Action]:
    try:
        async with asyncio.timeout(timeout):
            returned = await capture_result(_actions_of(source, run))
    except asyncio.CancelledError as cancelled:
        if is_being_cancelled():
            raise
        error: BaseException = cancelled  # cancelled inside the source: this run continues
    except TimeoutError:
        error = TimeoutError(f"{_name(source)} took longer than {timeout:g} s.")
    else:
        if returned.error is None:
            return returned.value
        error = returned.error
    logger.error("No actions from %s.", _name(source), exc_info=error)
    return ()


async def _actions_of(source: ActionSource, run: RunInput) -> Sequence[Action]:
    return _as_actions(await call(source.actions, run))


def _as_actions(actions: Actions) -> Sequence[Action]:
    from copilot_runtime.actions.functions import as_actions  # brings pydantic along

    return as_actions(actions)


def _name(source: ActionSource) -> str:
    if not isinstance(source, ActionFunction):
        return type(source).__name__
    function = inspect.unwrap(source.function)
    return getattr(function, "__qualname__", type(function).__name__)
