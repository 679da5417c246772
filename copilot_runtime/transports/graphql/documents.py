"""Parse, validate and plan a GraphQL document once, however often it is sent.

Parsing and validating the v1 client's document takes 5 ms, more than everything else in a
short chat together; every client sends the same few documents.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

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
    SelectionSetNode,
    parse,
    specified_rules,
    validate,
)

from copilot_runtime.transports.graphql.plan import Plan, plan

_CACHE_SIZE = 256
"""Documents remembered, most recently used."""

_MAX_ROOT_FIELDS = 4
"""Each root field of a mutation may start a run, and each run costs tokens."""


@dataclass(slots=True)
class Document:
    """A document as it was understood; `errors` say why it was not."""

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
        self._known: OrderedDict[str, Document] = OrderedDict()

    def get(self, text: str) -> Document:
        """Return what is known of a document."""
        document = self._known.get(text)
        if document is None:
            document = self._known[text] = self._read(text)
            if len(self._known) > _CACHE_SIZE:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(text)
        return document

    def plan(self, document: Document, operation_name: str | None) -> Plan | None:
        """Return the plan of an operation, if it has the shape that can be planned."""
        if operation_name not in document.plans:
            assert document.node is not None
            document.plans[operation_name] = plan(self.schema, document.node, operation_name)
        return document.plans[operation_name]

    def _read(self, text: str) -> Document:
        try:
            node = parse(text, max_tokens=self.max_tokens)
        except GraphQLError as error:
            return Document(None, [error], parsed=False)
        if errors := self._limits(node):  # before validation, which a large document makes slow
            return Document(None, errors)
        return Document(node, validate(self.schema, node, self._rules, max_errors=20))

    def _limits(self, node: DocumentNode) -> list[GraphQLError]:
        fragments = {
            item.name.value: item
            for item in node.definitions
            if isinstance(item, FragmentDefinitionNode)
        }
        measure = _Measure(fragments)
        errors: list[GraphQLError] = []
        for operation in node.definitions:
            if not isinstance(operation, OperationDefinitionNode):
                continue
            depth, aliases = measure.of(operation.selection_set, ())
            if depth > self.max_depth:
                errors.append(
                    GraphQLError(
                        f"The operation is {depth} levels deep; {self.max_depth} are allowed."
                    )
                )
            if aliases > self.max_aliases:
                errors.append(
                    GraphQLError(
                        f"The operation has {aliases} aliases; {self.max_aliases} are allowed."
                    )
                )
            if (
                operation.operation is OperationType.MUTATION
                and measure.fields(operation.selection_set, ()) > _MAX_ROOT_FIELDS
            ):
                errors.append(
                    GraphQLError(f"A mutation may have {_MAX_ROOT_FIELDS} fields at its root.")
                )
        return errors


class _Measure:
    """Depth and number of aliases of a selection, with its fragments spread out."""

    def __init__(self, fragments: dict[str, FragmentDefinitionNode]) -> None:
        self._fragments = fragments
        self._known: dict[str, tuple[int, int]] = {}
        self._fields: dict[str, int] = {}

    def of(
        self, selection_set: SelectionSetNode | None, inside: tuple[str, ...]
    ) -> tuple[int, int]:
        depth = aliases = 0
        for node in selection_set.selections if selection_set else ():
            below = self._below(node, inside)
            depth = max(depth, below[0])
            aliases += below[1]
        return depth, aliases

    def fields(self, selection_set: SelectionSetNode, inside: tuple[str, ...]) -> int:
        """Return the number of fields at the top of a selection."""
        return sum(self._top(node, inside) for node in selection_set.selections)

    def _top(self, node: object, inside: tuple[str, ...]) -> int:
        match node:
            case InlineFragmentNode():
                return self.fields(node.selection_set, inside)
            case FragmentSpreadNode():
                name = node.name.value
                if name in inside or name not in self._fragments:  # validation will say so
                    return 0
                if name not in self._fields:
                    fragment = self._fragments[name].selection_set
                    self._fields[name] = self.fields(fragment, (*inside, name))
                return self._fields[name]
            case _:
                return 1

    def _below(self, node: object, inside: tuple[str, ...]) -> tuple[int, int]:
        match node:
            case FieldNode():
                depth, aliases = self.of(node.selection_set, inside)
                return depth + 1, aliases + (node.alias is not None)
            case InlineFragmentNode():
                return self.of(node.selection_set, inside)
            case FragmentSpreadNode():
                return self._fragment(node.name.value, inside)
            case _:
                return 0, 0

    def _fragment(self, name: str, inside: tuple[str, ...]) -> tuple[int, int]:
        if name in inside or name not in self._fragments:  # validation will say so
            return 0, 0
        if name not in self._known:
            self._known[name] = self.of(self._fragments[name].selection_set, (*inside, name))
        return self._known[name]
