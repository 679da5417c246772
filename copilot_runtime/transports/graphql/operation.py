"""The operations of a GraphQL document: what depends on their text alone, found once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphql import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    InlineFragmentNode,
    ListTypeNode,
    NamedTypeNode,
    NonNullTypeNode,
    OperationDefinitionNode,
    OperationType,
    SelectionSetNode,
    TypeNode,
)

from copilot_runtime.api.identity import USER_SCOPES, Identity
from copilot_runtime.transports.request import Request

_SCOPES: Mapping[str, str] = {
    "hello": "",
    "availableAgents": "",
    "generateCopilotResponse": "runs:start",
    "stopCopilotResponse": "runs:start",
    "loadAgentState": "threads:read",
}
"""Root field → required scope; empty if none is required."""

_JSON = ("JSON", "JSONObject")


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation: its kind, its name for the audit log, and the scopes of its root fields.

    `inputs` are the names of its variables of input types, which exclude arbitrary JSON.
    """

    kind: OperationType
    action: str
    starts_run: bool
    scopes: Sequence[str]
    inputs: Sequence[str]

    def describe(self, request: Request) -> None:
        """Record in a request that it executes this operation, for the audit log."""
        request.action = self.action
        request.is_read = self.kind is OperationType.QUERY
        request.starts_run = self.starts_run

    def require_scopes(self, identity: Identity) -> None:
        """Raise `Forbidden` if a field needs a scope that the caller lacks."""
        if identity.permissions >= USER_SCOPES:
            return  # the usual case; operator data checks its own scope
        for scope in self.scopes:
            identity.require(scope)

    def select_inputs(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the variables of input types."""
        return {name: variables[name] for name in self.inputs if name in variables}


def list_operations(document: DocumentNode) -> Mapping[str | None, Operation]:
    """Return the operations of a document by name; the only one also by `None`."""
    nodes = [item for item in document.definitions if isinstance(item, OperationDefinitionNode)]
    operations = {
        node.name.value if node.name else None: _read_operation(document, node) for node in nodes
    }
    if len(nodes) == 1:
        [operations[None]] = operations.values()
    else:
        operations.pop(None, None)
    return operations


def _read_operation(document: DocumentNode, node: OperationDefinitionNode) -> Operation:
    fragments = {
        item.name.value: item.selection_set
        for item in document.definitions
        if isinstance(item, FragmentDefinitionNode)
    }
    fields = [*dict.fromkeys(_list_fields(node.selection_set, fragments))]
    other = "data:write" if node.operation is OperationType.MUTATION else "data:read"
    scopes = [_SCOPES.get(name, "" if name.startswith("__") else other) for name in fields]
    return Operation(
        kind=node.operation,
        action=f"{node.operation.value} {', '.join(fields[:5])}",
        starts_run=fields == ["generateCopilotResponse"],
        scopes=[scope for scope in scopes if scope],
        inputs=[
            definition.variable.name.value
            for definition in node.variable_definitions or ()
            if _find_type_name(definition.type) not in _JSON
        ],
    )


def _find_type_name(node: TypeNode) -> str:
    """Return the name of a type, without its lists and exclamation marks."""
    while isinstance(node, ListTypeNode | NonNullTypeNode):
        node = node.type
    assert isinstance(node, NamedTypeNode)
    return node.name.value


def _list_fields(
    selection_set: SelectionSetNode, fragments: dict[str, SelectionSetNode]
) -> Iterator[str]:
    """Yield the names of fields; `fragments` is emptied, so that each is expanded only once."""
    for node in selection_set.selections:
        match node:
            case FieldNode():
                yield node.name.value
            case InlineFragmentNode():
                yield from _list_fields(node.selection_set, fragments)
            case FragmentSpreadNode():
                if (spread := fragments.pop(node.name.value, None)) is not None:
                    yield from _list_fields(spread, fragments)
            case _:
                raise AssertionError("a selection has fields and fragments")
