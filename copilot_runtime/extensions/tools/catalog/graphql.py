"""Endpoints that are operations of a GraphQL service."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from graphql import (
    DocumentNode,
    GraphQLError,
    ListTypeNode,
    NamedTypeNode,
    NonNullTypeNode,
    OperationDefinitionNode,
    OperationType,
    TypeNode,
    parse,
    value_from_ast_untyped,
)
from pydantic import StringConstraints

from copilot_runtime.api.action import ActionContext
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.base.jsonvalue import JsonObject, as_object, as_objects, get_text
from copilot_runtime.extensions.tools.catalog.client import HttpClient
from copilot_runtime.extensions.tools.catalog.endpoints import (
    Endpoint,
    EndpointOptions,
    Operation,
    Surroundings,
)
from copilot_runtime.extensions.tools.catalog.http import (
    Expression,
    Headers,
    check_address,
    encode_body,
    select,
)

if TYPE_CHECKING:
    from copilot_runtime.extensions.tools.catalog.definition import ToolDefinition

_SCALARS: Mapping[str, JsonObject] = {
    "ID": {"type": "string"},
    "String": {"type": "string"},
    "Int": {"type": "integer"},
    "Float": {"type": "number"},
    "Boolean": {"type": "boolean"},
}
_PROBE = "{ __typename }"
"""A query that every service answers without side effects."""


class GraphqlOptions(EndpointOptions):
    """A query or mutation, whose variables are the parameters."""

    url: Annotated[str, StringConstraints(min_length=1)]
    query: Annotated[str, StringConstraints(min_length=1)]
    headers: Headers
    result: Expression | None = None
    """A JMESPath expression that selects the result from the data."""


class GraphqlEndpoint(Endpoint[GraphqlOptions]):
    """A GraphQL operation. Queries are idempotent, mutations are not."""

    Options = GraphqlOptions

    def __init__(
        self, tool: "ToolDefinition", options: GraphqlOptions, surroundings: Surroundings
    ) -> None:
        super().__init__(tool, options, surroundings)
        surroundings.references.check([options.url, options.headers])
        check_address(options.url, surroundings)
        self._operation = _parse_operation(options.query)
        self._client = HttpClient(tool.name, tool.timeout)

    async def load(self, run: RunInput) -> Sequence[Operation]:
        del run
        operation = Operation(
            call=self._call,
            parameters=_build_schema(self._operation),
            is_idempotent=self._operation.operation is OperationType.QUERY,
        )
        return [operation]

    async def check(self, run: RunInput) -> str:
        del run
        data = as_object(await self._send({"query": _PROBE}, None))
        return f"answers as {get_text(data, '__typename') or 'GraphQL'}"

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _call(self, values: Mapping[str, Any], context: ActionContext) -> Any:
        body = {"query": self.options.query, "variables": {**values}}
        data = await self._send(body, context)
        expression = self.options.result
        return data if expression is None else select(expression, data, self.tool)

    async def _send(self, body: JsonObject, context: ActionContext | None) -> Any:
        url, headers = self.surroundings.references.resolve(
            [self.options.url, self.options.headers], context
        )
        sent, content = encode_body(body, {name.lower(): text for name, text in headers.items()})
        reply = await self._client.send("POST", url, sent, content, context)
        answer = as_object(reply.parse_json())
        messages = [get_text(error, "message") for error in as_objects(answer.get("errors"))]
        if messages:  # partial data beside errors would mislead the model
            raise CopilotError(f"The service answered with errors: {'; '.join(messages)}")
        if "data" not in answer:
            raise CopilotError("The service answered without data: it may be no GraphQL.")
        return answer["data"]


def _parse_operation(query: str) -> OperationDefinitionNode:
    """Return the operation of a document.

    Raises `ConfigurationFailed` unless there is exactly one.
    """
    try:
        document: DocumentNode = parse(query)
    except GraphQLError as error:
        raise ConfigurationFailed(f"The query is no GraphQL: {error.message}") from error
    operations = [it for it in document.definitions if isinstance(it, OperationDefinitionNode)]
    if len(operations) != 1:
        raise ConfigurationFailed(f"The query has {len(operations)} operations: write one.")
    if operations[0].operation is OperationType.SUBSCRIPTION:
        raise ConfigurationFailed("The query is a subscription, which has no end: write a query.")
    return operations[0]


def _build_schema(operation: OperationDefinitionNode) -> JsonObject:
    properties: JsonObject = {}
    required: list[str] = []
    for variable in operation.variable_definitions or ():
        name = variable.variable.name.value
        properties[name] = _build_type(variable.type)
        if variable.default_value is not None:
            properties[name]["default"] = value_from_ast_untyped(variable.default_value)
        elif isinstance(variable.type, NonNullTypeNode):
            required.append(name)
    return {"type": "object", "properties": properties, "required": required}


def _build_type(node: TypeNode) -> JsonObject:
    """Return the JSON schema of a type; for the service's own types, only the name is known."""
    if isinstance(node, NonNullTypeNode):
        return _build_type(node.type)
    if isinstance(node, ListTypeNode):
        return {"type": "array", "items": _build_type(node.type)}
    name = node.name.value if isinstance(node, NamedTypeNode) else ""
    return {**_SCALARS.get(name, {"description": f"A value of the type {name}."})}
