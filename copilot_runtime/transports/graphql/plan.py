"""Compile a document of the shape that CopilotKit's clients send, so that no engine runs it.

graphql-core needs about 40 µs for a streamed item and 1 ms to begin; a plan needs 2 µs and
0.1 ms, and writes what graphql-core would. What can be planned is one `generateCopilotResponse`
whose messages and meta events are streamed and whose statuses are deferred, with any aliases,
fragments and selection of fields. Everything else (conditions, labels, initial counts, another
arrangement of @stream and @defer) has no plan and runs on graphql-core, in the same dialect.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any

from graphql import (
    DirectiveNode,
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLInterfaceType,
    GraphQLObjectType,
    GraphQLSchema,
    GraphQLUnionType,
    InlineFragmentNode,
    OperationDefinitionNode,
    OperationType,
    SelectionSetNode,
    VariableNode,
    get_named_type,
    get_operation_ast,
)
from strawberry.types import get_object_definition

from copilot_runtime.transports.graphql.statuses import SuccessMessageStatus
from copilot_runtime.transports.graphql.types import graphql_name, iso

STREAMED = {"TextMessageOutput": "content", "ActionExecutionMessageOutput": "arguments"}
"""The streamed field of each message type that has one."""

_SUCCESS = SuccessMessageStatus()


@dataclass(frozen=True, slots=True)
class Field:
    """A selected field: the key it is answered under, its name, and what is asked of it."""

    key: str
    name: str
    selection: "Selection | None" = None


@dataclass(frozen=True, slots=True)
class Selection:
    """What is asked of an object, by the name of its type: at once, and deferred."""

    now: Mapping[str, Sequence[Field]]
    later: Mapping[str, Sequence[Field]]


@dataclass(frozen=True, slots=True)
class Plan:
    """One `generateCopilotResponse`: the variables it takes, and what it answers by which key."""

    key: str
    data: str
    properties: str | None
    head: Sequence[Field]
    later: Sequence[Field]
    messages: Field | None
    meta_events: Field | None


def plan(schema: GraphQLSchema, document: DocumentNode, operation_name: str | None) -> Plan | None:
    """Return the plan of a valid document's operation, or None when it has none."""
    operation = get_operation_ast(document, operation_name)
    if operation is None or operation.operation is not OperationType.MUTATION:
        return None
    fragments = {
        item.name.value: item
        for item in document.definitions
        if isinstance(item, FragmentDefinitionNode)
    }
    try:
        return _Compiler(schema, fragments).operation(operation)
    except _NoPlan:
        return None


def select(field: Field, value: Any) -> dict[str, Any]:
    """Return what is asked of the value of a field, which is whole: nothing of it is deferred."""
    assert field.selection is not None
    return project(field.selection.now[type(value).__name__], value)


def project(fields: Iterable[Field], owner: Any, status: object = _SUCCESS) -> dict[str, Any]:
    """Return what is asked of an object of `outputs.py` or `statuses.py`."""
    return {field.key: value_of(field, owner, status) for field in fields}


def value_of(field: Field, owner: Any, status: object = _SUCCESS) -> Any:
    """Return the value of one field of such an object; `status` is its status."""
    if field.name == "__typename":
        return type(owner).__name__
    if field.name in {"content", "arguments"}:
        return [owner.whole]  # only a message that is whole is projected with its text
    if field.name == "status":
        return select(field, status)
    value = getattr(owner, _attributes(type(owner))[field.name])
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return iso(value)
    if field.selection is None or value is None:
        return value
    if isinstance(value, list):
        items: list[Any] = value
        return [select(field, item) for item in items]
    return select(field, value)


@cache
def _attributes(cls: type) -> Mapping[str, str]:
    definition = get_object_definition(cls, strict=True)
    return {graphql_name(item.python_name): item.python_name for item in definition.fields}


class _NoPlan(Exception):
    """The document has a shape that graphql-core must run."""


class _Compiler:
    def __init__(
        self, schema: GraphQLSchema, fragments: Mapping[str, FragmentDefinitionNode]
    ) -> None:
        self.schema = schema
        self.fragments = fragments

    def operation(self, operation: OperationDefinitionNode) -> Plan:
        match operation.selection_set.selections:
            case (FieldNode() as root,) if root.name.value == "generateCopilotResponse":
                pass
            case _:
                raise _NoPlan
        if root.directives or operation.directives:
            raise _NoPlan
        if any(item.default_value is not None for item in operation.variable_definitions or ()):
            raise _NoPlan
        arguments = {item.name.value: item.value for item in root.arguments or ()}
        data, properties = arguments.get("data"), arguments.get("properties")
        if not isinstance(data, VariableNode):
            raise _NoPlan
        if not isinstance(properties, VariableNode | None):
            raise _NoPlan
        selection = self._selection([root.selection_set], ["CopilotResponse"], streams=True)
        now, later = selection.now["CopilotResponse"], selection.later["CopilotResponse"]
        return Plan(
            key=root.alias.value if root.alias else root.name.value,
            data=data.name.value,
            properties=properties.name.value if properties else None,
            head=now,
            later=later,
            messages=next((item for item in now if item.name == "messages"), None),
            meta_events=next((item for item in now if item.name == "metaEvents"), None),
        )

    def _selection(
        self, sets: Iterable[SelectionSetNode | None], types: Iterable[str], *, streams: bool
    ) -> Selection:
        sets = [item for item in sets if item is not None]
        now: dict[str, Sequence[Field]] = {}
        later: dict[str, Sequence[Field]] = {}
        for name in types:
            found: _Found = ({}, {})
            for item in sets:
                self._collect(item, name, found, deferred=False)
            if not streams:  # it is written whole, so what is deferred of it comes at once
                found = (_merge(*found), {})
            _check_split(*found)
            now[name] = [self._field(*item, name, streams) for item in found[0].items()]
            fields = [self._field(*item, name, streams=False) for item in found[1].items()]
            later[name] = [
                field for field in fields if field.name == "__typename" or field.key not in found[0]
            ]
            if streams:
                _check_parts(now[name], later[name], _STREAMS.get(name, ()))
        return Selection(now, later)

    def _collect(
        self, selection_set: SelectionSetNode, type_name: str, found: "_Found", *, deferred: bool
    ) -> None:
        for node in selection_set.selections:
            match node:
                case FieldNode():
                    key = node.alias.value if node.alias else node.name.value
                    found[deferred].setdefault(key, []).append(node)
                case InlineFragmentNode():
                    self._collect_fragment(node, node, type_name, found, deferred=deferred)
                case FragmentSpreadNode():
                    fragment = self.fragments[node.name.value]
                    self._collect_fragment(node, fragment, type_name, found, deferred=deferred)
                case _:
                    raise _NoPlan

    def _collect_fragment(
        self,
        node: InlineFragmentNode | FragmentSpreadNode,
        fragment: InlineFragmentNode | FragmentDefinitionNode,
        type_name: str,
        found: "_Found",
        *,
        deferred: bool,
    ) -> None:
        late = deferred or self._directive(node.directives, "defer")
        condition = fragment.type_condition
        if condition is None or type_name in self._possible(condition.name.value):
            self._collect(fragment.selection_set, type_name, found, deferred=late)

    def _field(self, key: str, nodes: Sequence[FieldNode], type_name: str, streams: bool) -> Field:
        name = nodes[0].name.value
        must_stream = streams and name in _STREAMS.get(type_name, ())
        for node in nodes:
            streamed = self._directive(node.directives, "stream")
            if streamed != must_stream and streams:
                raise _NoPlan
        if name == "__typename":
            return Field(key, name)
        parent = self.schema.get_type(type_name)
        assert isinstance(parent, GraphQLObjectType)
        inner = get_named_type(parent.fields[name].type)
        types = self._possible(inner.name)
        if not types:
            return Field(key, name)
        nested = self._selection(
            [node.selection_set for node in nodes],
            types,
            streams=streams and type_name == "CopilotResponse" and name == "messages",
        )
        return Field(key, name, nested)

    def _possible(self, type_name: str) -> Sequence[str]:
        """Return the names of the object types that a value of a type can have."""
        type_ = self.schema.get_type(type_name)
        if isinstance(type_, GraphQLObjectType):
            return [type_name]
        if isinstance(type_, GraphQLInterfaceType | GraphQLUnionType):
            return [item.name for item in self.schema.get_possible_types(type_)]
        return []

    def _directive(self, directives: Sequence[DirectiveNode] | None, name: str) -> bool:
        """Tell whether the one directive we know is there, bare. Any other one means no plan."""
        if not directives:
            return False
        if len(directives) > 1 or directives[0].name.value != name or directives[0].arguments:
            raise _NoPlan
        return True


_Nodes = dict[str, list[FieldNode]]
_Found = tuple[_Nodes, _Nodes]
"""The nodes under each key: at once, and deferred."""

_STREAMS: Mapping[str, Sequence[str]] = {
    "CopilotResponse": ("messages", "metaEvents"),
    **{type_name: (field,) for type_name, field in STREAMED.items()},
}
"""The fields that must carry @stream to be planned."""


def _check_parts(now: Sequence[Field], later: Sequence[Field], streams: Sequence[str]) -> None:
    """Refuse an object whose status is not deferred, or whose streams are, or come twice."""
    streamed = [field.name for field in now if field.name in streams]
    if (
        any(field.name == "status" for field in now)
        or any(field.name in streams for field in later)
        or len({*streamed}) < len(streamed)
    ):
        raise _NoPlan


def _merge(now: _Nodes, later: _Nodes) -> _Nodes:
    return {key: [*now.get(key, ()), *later.get(key, ())] for key in {**now, **later}}


def _check_split(now: _Nodes, later: _Nodes) -> None:
    """Refuse an object of which a part is asked for at once and another part deferred."""
    if any(node.selection_set for key in now.keys() & later.keys() for node in later[key]):
        raise _NoPlan
