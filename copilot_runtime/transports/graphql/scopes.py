"""Which scopes an operation of GraphQL needs, by the fields at its root."""

from collections.abc import Iterator, Mapping

from graphql import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    InlineFragmentNode,
    OperationType,
    SelectionSetNode,
    get_operation_ast,
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


def require_scopes(document: DocumentNode, operation_name: str | None, identity: Identity) -> None:
    """Raise `Forbidden` if a field of an operation needs a scope that the caller lacks."""
    if identity.permissions >= USER_SCOPES:
        return  # nearly everybody: what is for operators alone is decided where it is read
    operation = get_operation_ast(document, operation_name)
    if operation is None:
        return
    fragments = _find_fragments(document)
    other = "data:write" if operation.operation is OperationType.MUTATION else "data:read"
    for name in _list_fields(operation.selection_set, fragments):
        scope = _SCOPES.get(name, "" if name.startswith("__") else other)
        if scope:
            identity.require(scope)


def name_operation(document: DocumentNode, operation_name: str | None, request: Request) -> None:
    """Say in a request what an operation asks for: for the audit log."""
    operation = get_operation_ast(document, operation_name)
    if operation is None:
        return
    fragments = _find_fragments(document)
    names = [*dict.fromkeys(_list_fields(operation.selection_set, fragments))]
    request.action = f"{operation.operation.value} {', '.join(names[:5])}"
    request.is_read = operation.operation is OperationType.QUERY
    request.starts_run = names == ["generateCopilotResponse"]


def _find_fragments(document: DocumentNode) -> dict[str, SelectionSetNode]:
    return {
        item.name.value: item.selection_set
        for item in document.definitions
        if isinstance(item, FragmentDefinitionNode)
    }


def _list_fields(
    selection_set: SelectionSetNode, fragments: dict[str, SelectionSetNode]
) -> Iterator[str]:
    """Yield the names of fields, each fragment only once: it is taken out of `fragments`."""
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
