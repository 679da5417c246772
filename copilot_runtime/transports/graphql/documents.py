"""Parse, validate and plan GraphQL documents, with a cache.

Parsing and validating the v1 client's document takes 5 ms, more than everything else in a short
chat together, but clients only send a few different documents. Other documents may take longer, so
they are parsed one at a time in a separate thread, without blocking other requests.
"""

import asyncio
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

from graphql import (
    DirectiveNode,
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
    ValidationContext,
    ValidationRule,
    is_introspection_type,
    parse,
    specified_rules,
    validate,
)

from copilot_runtime.transports.graphql.operation import Operation, list_operations
from copilot_runtime.transports.graphql.plan import Plan, compile_plan

_CACHE_SIZE = 64
"""Size of the LRU cache of documents. One takes up to 1 MB."""

_LONGEST_REMEMBERED = 20_000
"""Maximum number of characters of a cached document; CopilotKit's clients send 3,300."""

_MAX_ROOT_FIELDS = 4
"""Each root field of a mutation may start a run, and each run costs tokens."""


@dataclass(slots=True)
class Document:
    """A parsed document, or its syntax and validation `errors`.

    `operations` are by name; for a request without a name, the only one is also under `None`.
    """

    node: DocumentNode | None
    errors: list[GraphQLError] = field(default_factory=list[GraphQLError])
    parsed: bool = True
    operations: Mapping[str | None, Operation] = field(default_factory=dict[str | None, Operation])
    plans: dict[str | None, Plan | None] = field(default_factory=dict[str | None, Plan | None])


class Documents:
    """A cache of documents of at most `max_length` characters and `max_tokens` tokens, by text.

    `max_depth`, `max_aliases` and `max_repeats` limit each operation: validation compares all
    fields of one name with each other (240 take half a second; the client's chat has 34).
    `IntrospectionLimitsRule` limits introspection. Only valid documents are cached.
    """

    def __init__(
        self,
        schema: GraphQLSchema,
        *,
        max_length: int = 64 * 1024,
        max_depth: int = 15,
        max_aliases: int = 50,
        max_tokens: int = 2_000,
        max_repeats: int = 150,
        introspection: bool = True,
    ) -> None:
        self.schema = schema
        self.max_length = max_length
        self.max_depth = max_depth
        self.max_aliases = max_aliases
        self.max_tokens = max_tokens
        self.max_repeats = max_repeats
        schema_rule = IntrospectionLimitsRule if introspection else NoSchemaIntrospectionCustomRule
        self._rules = (*specified_rules, schema_rule)
        self._known: dict[str, Document] = {}
        self._lock = Lock()
        self._reader = ThreadPoolExecutor(1, "graphql-documents")

    async def get(self, text: str) -> Document:
        """Return the parsed document of a text, from the cache if possible."""
        if (document := self._recall(text)) is not None:
            return document
        if len(text) > self.max_length:  # a parser reads every character, even of comments
            message = (
                f"The document has {len(text)} characters; {self.max_length} are allowed. "
                "Send values in the variables."
            )
            return Document(None, [GraphQLError(message)], parsed=False)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reader, self._read_once, text)

    def _recall(self, text: str) -> Document | None:
        """Return a cached document, and mark it as the most recently used; `None` if absent."""
        with self._lock:
            document = self._known.pop(text, None)
            if document is not None:
                self._known[text] = document
        return document

    def _remember(self, text: str, document: Document) -> None:
        with self._lock:
            self._known[text] = document
            if len(self._known) > _CACHE_SIZE:
                del self._known[next(iter(self._known))]

    def plan(self, document: Document, operation_name: str | None) -> Plan | None:
        """Return the plan of an operation, or `None` if its shape is not supported."""
        if operation_name not in document.plans:
            assert document.node is not None
            document.plans[operation_name] = compile_plan(
                self.schema, document.node, operation_name
            )
        return document.plans[operation_name]

    def _read_once(self, text: str) -> Document:
        """Parse a document, unless another request has done so in the meantime."""
        if (document := self._recall(text)) is not None:
            return document
        document = self._read(text)
        if not document.errors and len(text) <= _LONGEST_REMEMBERED:
            self._remember(text, document)
        return document

    def _read(self, text: str) -> Document:
        try:
            node = parse(text, max_tokens=self.max_tokens)
        except GraphQLError as error:
            return Document(None, [error], parsed=False)
        if errors := self._limits(node):  # before validation, which is slow for large documents
            return Document(None, errors)
        errors = validate(self.schema, node, self._rules, max_errors=20)
        return Document(node, errors, operations=list_operations(node))

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
            elif size.all_repeats > self.max_repeats:
                text = (
                    f"The operation repeats {size.all_repeats} fields; "
                    f"{self.max_repeats} are allowed."
                )
                errors.append(GraphQLError(text))
            is_mutation = operation.operation is OperationType.MUTATION
            if is_mutation and size.fields > _MAX_ROOT_FIELDS:
                text = f"A mutation may have {_MAX_ROOT_FIELDS} fields at its root."
                errors.append(GraphQLError(text))
        return errors


class _Size(NamedTuple):
    """The size of a selection, with its fragments expanded.

    `fields` is the number of its top-level fields, and `names` are their response keys. `repeats`
    counts the nested fields with the same response key as a sibling.
    """

    depth: int = 0
    aliases: int = 0
    fields: int = 0
    names: AbstractSet[str] = frozenset()
    repeats: int = 0

    @property
    def all_repeats(self) -> int:
        return self.repeats + self.fields - len(self.names)


class _Measure:
    """Measures the selections of a document; the size of each fragment is computed once."""

    def __init__(self, document: DocumentNode) -> None:
        self._fragments = {
            item.name.value: item.selection_set
            for item in document.definitions
            if isinstance(item, FragmentDefinitionNode)
        }
        self._known: dict[str, _Size] = {}

    def selection(self, selection_set: SelectionSetNode) -> _Size:
        depth = aliases = fields = repeats = 0
        names: set[str] = set()
        for node in selection_set.selections:
            size = self._node(node)
            depth = max(depth, size.depth)
            aliases += size.aliases
            fields += size.fields
            names |= size.names
            repeats += size.repeats
        return _Size(depth, aliases, fields, names, repeats)

    def _node(self, node: SelectionNode) -> _Size:
        match node:
            case FieldNode():
                below = self.selection(node.selection_set) if node.selection_set else _Size()
                return _Size(
                    depth=below.depth + 1,
                    aliases=below.aliases + (node.alias is not None),
                    fields=1,
                    names={(node.alias or node.name).value},
                    repeats=below.all_repeats,
                )
            case InlineFragmentNode():
                return self.selection(node.selection_set)
            case FragmentSpreadNode():
                return self._fragment(node.name.value)
            case _:
                raise AssertionError("a selection has fields and fragments")

    def _fragment(self, name: str) -> _Size:
        if name not in self._known:
            self._known[name] = _Size()  # for a recursive fragment, which validation rejects
            if (selection_set := self._fragments.get(name)) is not None:
                self._known[name] = self.selection(selection_set)
        return self._known[name]


_MOST = {"__schema": 1, "__type": 8}
"""Limits of the root fields. Some tools first query each of the 8 introspection types."""

_PATCHES = ("defer", "stream")


class IntrospectionLimitsRule(ValidationRule):
    """A validation rule that limits introspection.

    It limits the number of `__schema` and `__type` fields in a document. Below them, it rejects
    aliases, which repeat a list, and `@defer` and `@stream`, whose patches cost more than their
    content. graphql-core limits the nesting of lists.
    """

    def __init__(self, context: ValidationContext) -> None:
        super().__init__(context)
        self._counts = dict.fromkeys(_MOST, 0)
        self._has_alias = self._has_patches = False

    def enter_field(self, node: FieldNode, *_: object) -> None:
        name = node.name.value
        if name in self._counts:
            self._counts[name] += 1
        if node.alias is not None and self._is_below():
            self._has_alias = True

    def enter_directive(self, node: DirectiveNode, *_: object) -> None:
        if node.name.value in _PATCHES and self._is_below():
            self._has_patches = True

    def leave_document(self, *_: object) -> None:
        for name, most in _MOST.items():
            if (count := self._counts[name]) > most:
                text = f"The document asks for '{name}' {count} times; the limit is {most}."
                self.report_error(GraphQLError(text))
        if self._has_alias:
            self.report_error(GraphQLError("Nothing below '__schema' and '__type' has an alias."))
        if self._has_patches:
            self.report_error(
                GraphQLError("Nothing below '__schema' and '__type' has '@defer' or '@stream'.")
            )

    def _is_below(self) -> bool:
        """Return whether the visited node is inside a selection of an introspection type."""
        parent = self.context.get_parent_type()
        return parent is not None and is_introspection_type(parent)
