"""Parse, validate and plan a GraphQL document once, however often it is sent.

Parsing and validating the v1 client's document takes 5 ms, more than everything else in a
short chat together; every client sends the same few documents.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from graphql import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLError,
    GraphQLSchema,
    InlineFragmentNode,
    NoSchemaIntrospectionCustomRule,
    OperationDefinitionNode,
    OperationType,
    SelectionNode,
    SelectionSetNode,
    parse,
    specified_rules,
    validate,
)

from copilot_runtime.transports.graphql.plan import Plan, compile_plan

_CACHE_SIZE = 256
"""Documents remembered, most recently used."""

_MAX_ROOT_FIELDS = 4
"""Each root field of a mutation may start a run, and each run costs tokens."""


@dataclass(slots=True)
class Document:
    """A parsed document, or the `errors` for which it is refused."""

    node: DocumentNode | None
    errors: list[GraphQLError] = field(default_factory=list[GraphQLError])
    parsed: bool = True
    plans: dict[str | None, Plan | None] = field(default_factory=dict[str | None, Plan | None])


class Documents:
    """Documents by their text. `max_depth` and `max_aliases` bound each operation."""

    def __init__(
        self,
        schema: GraphQLSchema,
        *,
        max_depth: int = 15,
        max_aliases: int = 50,
        max_tokens: int = 2_000,
        introspection: bool = True,
    ) -> None:
        self.schema = schema
        self.max_depth = max_depth
        self.max_aliases = max_aliases
        self.max_tokens = max_tokens
        self._rules = (
            specified_rules
            if introspection
            else (*specified_rules, NoSchemaIntrospectionCustomRule)
        )
        self.get = lru_cache(_CACHE_SIZE)(self._read)
        """Return a document by its text."""

    def plan(self, document: Document, operation_name: str | None) -> Plan | None:
        """Return the plan of an operation, if it has the shape that can be planned."""
        if operation_name not in document.plans:
            assert document.node is not None
            document.plans[operation_name] = compile_plan(
                self.schema, document.node, operation_name
            )
        return document.plans[operation_name]

    def _read(self, text: str) -> Document:
        try:
            node = parse(text, max_tokens=self.max_tokens)
        except GraphQLError as error:
            return Document(None, [error], parsed=False)
        if errors := self._limits(node):  # before validation, which a large document makes slow
            return Document(None, errors)
        return Document(node, validate(self.schema, node, self._rules, max_errors=20))

    def _limits(self, document: DocumentNode) -> list[GraphQLError]:
        measure = _Measure(document)
        errors: list[GraphQLError] = []
        for operation in document.definitions:
            if not isinstance(operation, OperationDefinitionNode):
                continue
            size = measure.selection(operation.selection_set)
            if size.depth > self.max_depth:
                text = f"The operation is {size.depth} levels deep; {self.max_depth} are allowed."
                errors.append(GraphQLError(text))
            if size.aliases > self.max_aliases:
                text = f"The operation has {size.aliases} aliases; {self.max_aliases} are allowed."
                errors.append(GraphQLError(text))
            is_mutation = operation.operation is OperationType.MUTATION
            if is_mutation and size.fields > _MAX_ROOT_FIELDS:
                text = f"A mutation may have {_MAX_ROOT_FIELDS} fields at its root."
                errors.append(GraphQLError(text))
        return errors


class _Size(NamedTuple):
    """What a selection amounts to with its fragments spread out; `fields` are those at its top."""

    depth: int = 0
    aliases: int = 0
    fields: int = 0


class _Measure:
    """Measures the selections of a document, each fragment only once."""

    def __init__(self, document: DocumentNode) -> None:
        self._fragments = {
            item.name.value: item.selection_set
            for item in document.definitions
            if isinstance(item, FragmentDefinitionNode)
        }
        self._known: dict[str, _Size] = {}

    def selection(self, selection_set: SelectionSetNode) -> _Size:
        depth = aliases = fields = 0
        for node in selection_set.selections:
            size = self._node(node)
            depth = max(depth, size.depth)
            aliases += size.aliases
            fields += size.fields
        return _Size(depth, aliases, fields)

    def _node(self, node: SelectionNode) -> _Size:
        match node:
            case FieldNode():
                below = self.selection(node.selection_set) if node.selection_set else _Size()
                return _Size(below.depth + 1, below.aliases + (node.alias is not None), 1)
            case InlineFragmentNode():
                return self.selection(node.selection_set)
            case FragmentSpreadNode():
                return self._fragment(node.name.value)
            case _:
                raise AssertionError("a selection has fields and fragments")

    def _fragment(self, name: str) -> _Size:
        if name not in self._known:
            self._known[name] = (
                _Size()
            )  # for a fragment that contains itself: no valid document has one
            if (selection_set := self._fragments.get(name)) is not None:
                self._known[name] = self.selection(selection_set)
        return self._known[name]
