"""Which actions a model or an agent is offered, the browser's among them."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain
from typing import Any, Literal, cast, get_args

import orjson

from copilot_runtime.concurrency import call, capture
from copilot_runtime.interfaces import Action, ActionSource, RunInput

Available = Literal["enabled", "remote", "disabled"]

Actions = Sequence[Action | Callable[..., Any]]
"""`Action` values and functions, mixed."""

Source = Actions | Callable[[RunInput], Actions | Awaitable[Actions]] | ActionSource
"""A list, a function of the request (sync or async), or an object with such a method."""

logger = logging.getLogger(__name__)


def parse_frontend_action(
    name: str, description: str, json_schema: str, available: str = "enabled"
) -> Action:
    """Make an action of what the browser sent; one with an unreadable schema takes nothing."""
    if available not in get_args(Available):
        logger.warning("The browser action %r is %r; it is not offered.", name, available)
        available = "disabled"
    return Action(
        name=name,
        description=description,
        parameters=_parameters(name, json_schema),
        available=cast("Available", available),
    )


def select_actions(
    server: Sequence[Action], frontend: Sequence[Action], *, for_agent: bool
) -> Sequence[Action]:
    """Return what may be called: the server's actions, then the browser's, one per name."""
    found: dict[str, Action] = {}
    for action in (*server, *frontend):
        if action.available == "disabled" or (action.available == "remote" and not for_agent):
            continue
        if action.name in found:
            logger.warning("There are several actions %r; the first one counts.", action.name)
        else:
            found[action.name] = action
    return [*found.values()]


async def gather_actions(
    sources: Sequence[Source], run: RunInput, *, timeout: float = 30
) -> list[Action]:
    """Return the actions of all sources for this run; a source that fails is logged and left out.

    `timeout` is in seconds, for each source.
    """
    if all(_is_ready(source) for source in sources):  # no source that could be waited for
        return _deduplicate(cast("Sequence[Sequence[Action]]", sources))
    results = await asyncio.gather(*(_ask(source, run, timeout) for source in sources))
    return _deduplicate(results)


def _parameters(name: str, json_schema: str) -> dict[str, Any]:
    try:
        schema = orjson.loads(json_schema or "{}")
    except ValueError as error:
        logger.warning("The schema of the browser action %r is not JSON: %s", name, error)
        schema = {}
    if not isinstance(schema, dict):
        logger.warning("The schema of the browser action %r is not a JSON object.", name)
        schema = {}
    # providers refuse an object that does not say what is in it
    return {"type": "object", "properties": {}, **cast("dict[str, Any]", schema)}


def _is_ready(source: Source) -> bool:
    return isinstance(source, Sequence) and all(isinstance(item, Action) for item in source)


def _deduplicate(sources: Sequence[Sequence[Action]]) -> list[Action]:
    found: dict[str, Action] = {}
    for action in chain.from_iterable(sources):
        if action.name in found:
            logger.warning("Two sources have an action %r; the first one counts.", action.name)
        else:
            found[action.name] = action
    return [*found.values()]


async def _ask(source: Source, run: RunInput, timeout: float) -> Sequence[Action]:
    try:
        async with asyncio.timeout(timeout):
            returned = await capture(_actions_of(source, run))
    except asyncio.CancelledError as cancelled:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        error: BaseException = cancelled  # by something inside the source: this run goes on
    except TimeoutError:
        error = TimeoutError(f"{_name(source)} took longer than {timeout:g} s.")
    else:
        if returned.error is None:
            return returned.value
        error = returned.error
    logger.error("No actions from %s.", _name(source), exc_info=error)
    return ()


async def _actions_of(source: Source, run: RunInput) -> Sequence[Action]:
    from copilot_runtime.actions.functions import as_actions  # brings pydantic along

    if isinstance(source, Sequence):
        return as_actions(source)
    method = cast("Callable[..., Any]", getattr(source, "actions", source))
    return as_actions(await call(method, run))


def _name(source: Source) -> str:
    named = inspect.unwrap(source) if callable(source) else source
    return getattr(named, "__qualname__", type(named).__name__)
