"""The knowledge tools as functions with signatures, for agent frameworks."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from copilot_runtime.api.action import Action
from copilot_runtime.api.messages import new_id
from copilot_runtime.api.run_input import CURRENT_RUN
from copilot_runtime.base.errors import CopilotError, Misuse

Function = Callable[..., Awaitable[Any]]

logger = logging.getLogger(__name__)


def build_functions(tools: Sequence[Action]) -> list[Function]:
    """Return a function for each action, with its name, its description and its parameters."""
    return [_build_function(tool) for tool in tools]


def _build_function(tool: Action) -> Function:
    async def call(**arguments: Any) -> Any:
        return await _call(tool, arguments)

    function = _SIGNATURES[tool.name](call)
    function.__name__ = function.__qualname__ = tool.name
    function.__doc__ = tool.description
    return function


async def _call(tool: Action, arguments: Mapping[str, Any]) -> Any:
    """Call an action as the caller of the current run; return errors to the model."""
    slot = CURRENT_RUN.get(None)
    run = slot.run if slot is not None else None
    if run is None:
        raise Misuse(
            f"{tool.name} was called outside of a run, so nobody knows for whom.",
            hint="Agents of a CopilotRuntime may call it. Elsewhere, call the methods of Knowledge "
            "with an actor: knowledge.search(text, actor=build_actor(user)).",
        )
    assert tool.run is not None
    try:
        return await tool.run(arguments, run.action_context(new_id()))
    except CopilotError as error:
        logger.warning("The tool %r failed: %s", tool.name, error.message)
        return f"Error: {error.public}"


_Texts = Annotated[list[str], Field(description="One to three short texts")]
_Call = Callable[..., Awaitable[Any]]


def _take_texts(call: _Call) -> Function:
    async def function(input: _Texts) -> Any:
        return await call(input=input)

    return function


def _take_pattern(call: _Call) -> Function:
    async def function(
        subject: Annotated[str, Field(description="IRI of a thing, or ?")] = "?",
        predicate: Annotated[str, Field(description="IRI of a predicate, or ?")] = "?",
        object: Annotated[str, Field(description="IRI, or a text in quotes, or ?")] = "?",
    ) -> Any:
        return await call(subject=subject, predicate=predicate, object=object)

    return function


def _take_nothing(call: _Call) -> Function:
    async def function() -> Any:
        return await call()

    return function


def _take_type(call: _Call) -> Function:
    async def function(
        type: Annotated[str, Field(description="IRI of a type, or nothing for all")] = "",
    ) -> Any:
        return await call(type=type)

    return function


_SIGNATURES: Mapping[str, Callable[[_Call], Function]] = {
    "search_content": _take_texts,
    "query_by_pattern": _take_pattern,
    "get_ontology": _take_nothing,
    "get_subjects": _take_type,
    "recall": _take_texts,
}
