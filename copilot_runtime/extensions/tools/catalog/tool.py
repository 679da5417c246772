"""A tool: its definition, its endpoint, and the checks around each call."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from copilot_runtime.actions.execute import serialize_result
from copilot_runtime.actions.json_schema import list_misfits
from copilot_runtime.actions.schema import InvalidArguments
from copilot_runtime.api.action import Action, ActionContext
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import (
    ConfigurationFailed,
    CopilotError,
    LimitExceeded,
    NetworkError,
    RunStalled,
)
from copilot_runtime.base.jsonvalue import JsonObject, as_list, as_object, as_text, get_text
from copilot_runtime.base.secrets import REDACTOR
from copilot_runtime.extensions.tools.catalog.definition import (
    ToolDefinition,
    build_parameters,
    fill_defaults,
    read_parameters,
)
from copilot_runtime.extensions.tools.catalog.endpoints import (
    Endpoint,
    Operation,
    Surroundings,
    endpoint_kinds,
)
from copilot_runtime.http.errors import backoff

NOTHING = "No results found."

ReadResources = Callable[[Sequence[str], ActionContext], Awaitable[Sequence[str]]]
"""Returns the texts of the resources, by URI, that the caller may read."""


async def read_result(
    tool: ToolDefinition, value: Any, read_resources: ReadResources | None, context: ActionContext
) -> Any:
    """Return the result of a tool.

    A tool in Copilot-LD's form returns a non-empty `content`, or else `identifiers`, or a message
    with neither field, such as its own example `sha256_hash`. Raises `CopilotError` if it has only
    an empty content.
    """
    fields = as_object(value)
    if tool.result_form == "identifiers":
        identifiers = fields.get("identifiers", value)
        return await _read_resources(_list_uris(identifiers), read_resources, context)
    if isinstance(value, str):
        return value
    if content := get_text(fields, "content"):
        return content if tool.method or tool.result_form == "content" else value
    if not tool.method or tool.result_form == "content":
        return value
    if fields and fields.keys().isdisjoint({"content", "identifiers"}):
        return value
    if "identifiers" not in fields:
        raise CopilotError("Invalid tool call result: no content or identifiers")
    return await _read_resources(_list_uris(fields["identifiers"]), read_resources, context)


def _list_uris(identifiers: Any) -> Sequence[str]:
    """Return the URIs of identifiers. Raises `CopilotError` if the value is no list of them."""
    uris = [_read_uri(identifier) for identifier in as_list(identifiers)]
    if not isinstance(identifiers, list) or not all(uris):
        raise CopilotError(
            "Invalid tool call result: identifiers must be a list of URIs, such as "
            "common.Document.d1."
        )
    return uris


def _read_uri(identifier: Any) -> str:
    """Return the URI of an identifier: a string, or an object with type, name and parent."""
    fields = as_object(identifier)
    if not fields:
        return as_text(identifier)
    if uri := get_text(fields, "uri") or get_text(fields, "id"):
        return uri
    kind, name, parent = (get_text(fields, key) for key in ("type", "name", "parent"))
    own = f"{kind}.{name}" if kind and name else ""
    return f"{parent}/{own}" if parent and own else own


async def _read_resources(
    uris: Sequence[str], read_resources: ReadResources | None, context: ActionContext
) -> str:
    if not uris:
        return NOTHING
    if read_resources is None:
        raise CopilotError("This tool names resources of knowledge, and there is no knowledge.")
    return "\n\n".join(await read_resources(uris, context)) or NOTHING


MAX_DESCRIPTION = 8000
"""Maximum length of a description for a model, in characters."""

_LONGEST_WAIT = 30.0
_MOST_NAMES = 20
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")

logger = logging.getLogger(__name__)


class Tool:
    """A tool of a file: one action, or several if its endpoint has several operations."""

    def __init__(
        self,
        definition: ToolDefinition,
        surroundings: Surroundings,
        read_resources: ReadResources | None = None,
    ) -> None:
        """Create the endpoint. Raises `ConfigurationFailed` if the options are invalid."""
        self.definition = definition
        self.surroundings = surroundings
        self.calls_under_way = 0
        self._read_resources = read_resources
        self._references = surroundings.references
        self._is_retired = False
        try:
            surroundings.references.check(definition.arguments)
            surroundings.references.learn_secrets(
                [definition.options.model_dump(mode="json"), dict(surroundings.services)]
            )
            kind = endpoint_kinds()[definition.kind]
            self.endpoint: Endpoint[Any] = kind(definition, definition.options, surroundings)
        except ConfigurationFailed as error:
            raise ConfigurationFailed(
                f"{definition.source}: the tool {definition.name!r}: {error.message}",
                hint=error.hint,
            ) from error

    async def build_actions(self, run: RunInput) -> Sequence[Action]:
        """Return the actions. Raises `CopilotError` if the endpoint is unreachable."""
        return [self._build_action(each) for each in await self.endpoint.load(run)]

    def describe_purpose(self) -> str:
        """Return a one-line purpose, as far as it is known without contacting the endpoint.

        It comes from the file, or else from the endpoint, such as the names of its operations.
        """
        if self.definition.sections:
            return self.definition.sections.partition("\n")[0].removeprefix("PURPOSE: ")
        operations = self.endpoint.list_operations()
        if len(operations) == 1 and operations[0].description:
            return operations[0].description.strip().partition("\n")[0]
        names = [_join_names(self.definition.name, each.name) for each in operations if each.name]
        return list_names(names)

    async def retire(self) -> None:
        """Close the endpoint when the current calls have ended."""
        self._is_retired = True
        if not self.calls_under_way:
            await self.endpoint.aclose()

    def _build_action(self, operation: Operation) -> Action:
        definition = self.definition
        stated, own = definition.idempotent, operation.is_idempotent
        schema = build_parameters(definition, operation)
        is_idempotent = own if stated is None else stated

        async def run(values: Mapping[str, Any], context: ActionContext) -> Any:
            arguments = self._merge(values, schema, operation, context)

            async def call() -> Any:
                return await operation.call(arguments, context)

            return await self._guard(call, operation, context, is_idempotent=is_idempotent)

        words = definition.sections or operation.description
        return Action(
            name=_join_names(definition.name, operation.name),
            description=words[:MAX_DESCRIPTION],
            parameters=schema,
            run=run,
            timeout=definition.timeout,
            is_idempotent=is_idempotent,
        )

    def _merge(
        self,
        values: Mapping[str, Any],
        schema: JsonObject,
        operation: Operation,
        context: ActionContext,
    ) -> JsonObject:
        """Return the model's arguments, completed by the file's defaults and its fixed arguments.

        Defaults that only the endpoint states are its own to apply. Raises `InvalidArguments`.
        """
        unseen = {*self.definition.arguments, *self.definition.hidden}
        own = {name: value for name, value in values.items() if name not in unseen}
        if not operation.checks_arguments and (misfits := list_misfits(own, schema)):
            names = ", ".join(schema["properties"]) or "none"
            raise InvalidArguments(f"Invalid arguments: {'; '.join(misfits)}. Known: {names}.")
        stated = as_object(read_parameters(self.definition.parameters)["properties"])
        visible = {name: stated[name] for name in stated if name in schema["properties"]}
        own = fill_defaults(own, visible)
        return {**own, **self._references.resolve(self.definition.arguments, context)}

    async def _guard(
        self,
        call: Callable[[], Awaitable[Any]],
        operation: Operation,
        context: ActionContext,
        *,
        is_idempotent: bool,
    ) -> Any:
        """Return the result of a call, validated, of a bounded size, and without secrets."""
        self.calls_under_way += 1
        try:
            value = await self._repeat(call, is_idempotent=is_idempotent)
            value = await read_result(self.definition, value, self._read_resources, context)
            self._check_result(value, operation)
            return self._check_size(value)
        finally:
            self.calls_under_way -= 1
            if self._is_retired and not self.calls_under_way:
                await self.endpoint.aclose()

    async def _repeat(self, call: Callable[[], Awaitable[Any]], *, is_idempotent: bool) -> Any:
        """Call the endpoint, with retries after temporary failures if the call is idempotent."""
        attempt = 0
        while True:
            try:
                return await call()
            except NetworkError as error:
                # no retry after a timeout: the user has waited long enough
                is_last = attempt >= self.definition.retries or isinstance(error, RunStalled)
                if is_last or not is_idempotent:
                    raise
                wait = getattr(error, "retry_after", None)
                wait = backoff(attempt) if wait is None else wait
                if wait > _LONGEST_WAIT:
                    raise
                logger.info("The tool %r is called again: %s", self.definition.name, error.message)
            await asyncio.sleep(wait)
            attempt += 1

    def _check_result(self, value: Any, operation: Operation) -> None:
        schema = self.definition.returns or operation.result_schema
        if schema is None:
            return
        try:
            misfits = list_misfits(value, schema)
        except ConfigurationFailed as error:
            raise CopilotError(f"Its result cannot be checked. {error.message}") from error
        if misfits:
            raise CopilotError(
                f"The tool {self.definition.name!r} gave something else than its schema says: "
                f"{'; '.join(misfits)}."
            )

    def _check_size(self, value: Any) -> Any:
        text = serialize_result(value)
        size, most = len(text.encode()), self.definition.max_result
        if size > most:
            raise LimitExceeded(
                f"The result of {self.definition.name!r} has {size} bytes; at most {most} are "
                "taken. Ask for less."
            )
        clean = REDACTOR.hide(text)
        return value if clean == text else clean


def list_names(names: Sequence[str]) -> str:
    """Return the names of actions as one text, shortened for a table."""
    more = len(names) - _MOST_NAMES
    rest = f" and {more} more" if more > 0 else ""
    return ", ".join(names[:_MOST_NAMES]) + rest


def _join_names(tool: str, operation: str) -> str:
    if not operation:
        return tool
    return f"{tool}_{_NOT_IN_NAMES.sub('_', operation)}"[:64]
