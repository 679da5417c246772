"""From Python's names to those of the v1 schema: camel case, with two exceptions."""

from strawberry.schema.name_converter import NameConverter

_EXCEPTIONS = {
    "to_deprecate_full_context": "toDeprecate_fullContext",
    "openai_assistant_api": "openaiAssistantAPI",
}


def graphql_name(name: str) -> str:
    """Return the GraphQL name of a Python field or argument."""
    if name in _EXCEPTIONS:
        return _EXCEPTIONS[name]
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail)


class Names(NameConverter):
    """Strawberry's hook for the same rule."""

    def apply_naming_config(self, name: str) -> str:
        return graphql_name(name)
