"""What a document may ask of the schema itself: `__schema` once, and a few types by their names.

One answer to `__schema` has 180 KB and takes 70 ms, during which the event loop stands still. A
document of 2 KB could ask for it 49 times, by as many aliases.
"""

from graphql import (
    DirectiveNode,
    FieldNode,
    GraphQLError,
    ValidationContext,
    ValidationRule,
    is_introspection_type,
)

_MOST = {"__schema": 1, "__type": 8}
"""Fields at the root. Some tools first ask what each of the 8 types of introspection has."""

_PATCHES = ("defer", "stream")


class IntrospectionLimitsRule(ValidationRule):
    """Refuses a document that asks for the schema again and again.

    `__schema` and `__type` are counted in the operations and fragments of a document. Below them
    nothing may have an alias, and nothing may come later: an alias repeats a list, and each patch
    costs more than what it brings. How often lists are nested is bounded by graphql-core.
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
        """Return whether what is visited stands in a selection of a type of introspection."""
        parent = self.context.get_parent_type()
        return parent is not None and is_introspection_type(parent)
