"""Documents are measured before they are validated, and understood once."""

import asyncio
import threading
from time import process_time

import pytest
from graphql import GraphQLError, get_introspection_query

from copilot_runtime.transports.graphql import documents
from copilot_runtime.transports.graphql.documents import Document, Documents
from tests.in_one_test import in_one_test
from tests.transports.graphql.generated import SCHEMA
from tests.wire.client import AGENTS, CHAT, PLAIN, STATE

ROOT = "generateCopilotResponse(data: $data) { threadId }"


def reasons(
    text: str, max_depth: int = 15, max_aliases: int = 50, max_tokens: int = 5000
) -> list[str]:
    """Return why a document is refused."""
    known = Documents(SCHEMA, max_depth=max_depth, max_aliases=max_aliases, max_tokens=max_tokens)
    return [error.message for error in read(known, text).errors]


def read(known: Documents, text: str) -> Document:
    return asyncio.run(known.get(text))


def nested(depth: int) -> str:
    return "{ a " * depth + "}" * depth


@in_one_test("text", [CHAT, PLAIN, AGENTS, STATE], ids=["chat", "plain", "a", "s"])
def test_what_clients_send_is_far_from_every_limit(text: str) -> None:
    assert reasons(text, max_depth=9, max_aliases=0, max_tokens=1000) == []


def test_an_operation_is_found_by_its_name_and_the_only_one_without() -> None:
    known = Documents(SCHEMA)
    one = read(known, "query a { hello }").operations
    two = read(known, 'query a { hello } mutation b { stopCopilotResponse(runId: "1") }').operations

    assert {name: found.action for name, found in one.items()} == {
        "a": "query hello",
        None: "query hello",
    }
    assert {name: found.action for name, found in two.items()} == {
        "a": "query hello",
        "b": "mutation stopCopilotResponse",
    }


@in_one_test(
    "text",
    [
        nested(16),
        "{ ...A } fragment A on Query { a { ...B } } fragment B on Query " + nested(15),
        "{ ... { ... on Query { a " + nested(15) + "} } }",
        "query small { hello } query large " + nested(16),
    ],
    ids=["fields", "through fragments", "through inline fragments", "in another operation"],
)
def test_a_document_one_level_too_deep_is_refused_for_that_alone(text: str) -> None:
    assert reasons(text) == ["The operation is 16 levels deep; 15 are allowed."]


def test_aliases_are_counted_wherever_they_come_from() -> None:
    text = "{ ...A ...A a: hello } fragment A on Query { ... { b: hello c: hello } }"

    assert reasons(text, max_aliases=5) == []
    assert reasons(text, max_aliases=4) == ["The operation has 5 aliases; 4 are allowed."]


def test_a_bomb_of_fragments_is_counted_without_being_built() -> None:
    bomb = " ".join(
        f"fragment F{n} on Query {{ ...F{n + 1} ...F{n + 1} x{n}: hello }}" for n in range(100)
    )
    began = process_time()
    (reason,) = reasons(f"{{ ...F0 }} {bomb} fragment F100 on Query {{ a: hello }}")

    assert "50 are allowed" in reason
    assert process_time() - began < 1


@in_one_test(
    "cycle",
    [
        "{ ...A } fragment A on Query { ...A }",
        "{ ...A } fragment A on Query { ...B } fragment B on Query { ...A }",
        "{ ...A } fragment A on Query { x: hello ...B } fragment B on Query { y: hello ...A }",
    ],
)
def test_fragments_in_a_circle_end_with_a_reason(cycle: str) -> None:
    assert any("Cannot spread fragment" in reason for reason in reasons(cycle))


@in_one_test("text", ["{ hello " * 5000, "{ a(b: " + "[" * 5000])
def test_a_document_of_too_many_words_is_not_read_to_its_end(text: str) -> None:
    (reason,) = reasons(text, max_tokens=100)

    assert "100 tokens" in reason


@in_one_test("text", ["{ hello", "", "}", "\x00", "{ hello } }", "query {", "#"])
def test_what_cannot_be_parsed_is_not_even_a_document(text: str) -> None:
    document = read(Documents(SCHEMA), text)

    assert (document.node, document.parsed, len(document.errors)) == (None, False, 1)


def test_a_mutation_may_not_start_runs_without_end() -> None:
    roots = " ".join(f"a{number}: {ROOT}" for number in range(5))

    assert reasons(f"mutation ($data: GenerateCopilotResponseInput!) {{ {roots} }}") == [
        "A mutation may have 4 fields at its root."
    ]


@in_one_test(
    "body",
    ["{{ ... {{ {roots} }} }}", "{{ ...All }} fragment All on Mutation {{ {roots} }}"],
    ids=["inline", "named"],
)
def test_a_mutation_may_not_hide_its_runs_in_fragments(body: str) -> None:
    roots = " ".join(f"a{number}: {ROOT}" for number in range(5))
    text = "mutation ($data: GenerateCopilotResponseInput!) " + body.format(roots=roots)

    assert reasons(text) == ["A mutation may have 4 fields at its root."]


def test_a_document_is_understood_once() -> None:
    known = Documents(SCHEMA)

    assert read(known, CHAT) is read(known, CHAT)
    assert known.plan(read(known, CHAT), None) is known.plan(read(known, CHAT), None) is not None


@in_one_test(
    "text",
    ["{ hello", "{ nothing }", "{ hello } #" + "x" * 20_000],
    ids=["not parsed", "not valid", "large"],
)
def test_what_is_invalid_or_large_takes_no_place_among_the_known(text: str) -> None:
    known = Documents(SCHEMA)

    assert read(known, text) is not read(known, text)


LONGEST = 100


@in_one_test(
    "text", ["{ hello } #" + "x" * LONGEST, '"""' + "x\n" * LONGEST + '""" query a { hello }']
)
def test_a_document_is_measured_before_any_of_it_is_read(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "parse", None)  # a parser reads comments, too

    document = read(Documents(SCHEMA, max_length=LONGEST), text)

    assert [error.message for error in document.errors] == [
        f"The document has {len(text)} characters; 100 are allowed. Send values in the variables."
    ]


@in_one_test(
    "text",
    [
        "{" + "availableAgents { agents { id } } " * 152 + "}",
        "{ availableAgents { agents {" + "...A " * 152 + "} } } fragment A on Agent { id }",
        "{" + "... { hello } " * 152 + "}",
        "{"
        + " ".join(f"...F{n}" for n in range(152))
        + "}"
        + "".join(f" fragment F{n} on Query {{ hello }}" for n in range(152)),
        "{ availableAgents {" + "agents { id id } " * 76 + "} }",
    ],
    ids=["fields", "one fragment", "inline fragments", "fragments", "at two levels"],
)
def test_fields_that_would_be_compared_each_with_each_are_counted_first(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "validate", None)  # which compares them

    assert reasons(text) == ["The operation repeats 151 fields; 150 are allowed."]


@pytest.mark.anyio
async def test_the_loop_goes_on_while_a_new_document_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released = threading.Event()

    def wait_to_validate(*_: object, **__: object) -> list[GraphQLError]:
        assert released.wait(30), "the loop stood still"
        return []

    known = Documents(SCHEMA)
    monkeypatch.setattr(documents, "validate", wait_to_validate)
    reading = [asyncio.create_task(known.get("{ hello }")) for _ in range(2)]
    await asyncio.sleep(0)
    released.set()
    first, second = await asyncio.gather(*reading)

    assert first is second


def test_the_documents_used_longest_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_CACHE_SIZE", 2)
    known = Documents(SCHEMA)
    hello, agents = read(known, "{ hello }"), read(known, AGENTS)
    read(known, "{ hello }")
    read(known, STATE)

    assert read(known, "{ hello }") is hello
    assert read(known, AGENTS) is not agents


@in_one_test(
    "text",
    [
        PLAIN,
        CHAT.replace("content @stream", "content"),
        CHAT.replace("@stream", "@stream(initialCount: 1)"),
        CHAT.replace("threadId", "threadId @include(if: true)", 1),
        CHAT.replace("@defer", '@defer(label: "x")', 1),
        AGENTS,
    ],
    ids=["plain", "whole content", "initial count", "condition", "label", "query"],
)
def test_what_has_another_shape_has_no_plan_and_is_still_valid(text: str) -> None:
    known = Documents(SCHEMA)

    assert read(known, text).errors == []
    assert known.plan(read(known, text), None) is None


def test_introspection_can_be_forbidden() -> None:
    (error,) = read(Documents(SCHEMA, introspection=False), "{ __schema { __typename } }").errors

    assert "introspection" in error.message


def introspect(fields: str) -> str:
    return f"{{ {fields} }} fragment All on __Schema {{ types {{ name fields {{ name }} }} }}"


ONCE = "The document asks for '__schema' 49 times; the limit is 1."
TYPES = "The document asks for '__type' 9 times; the limit is 8."
NO_ALIAS = "Nothing below '__schema' and '__type' has an alias."
NO_PATCHES = "Nothing below '__schema' and '__type' has '@defer' or '@stream'."


@in_one_test(
    ("text", "reason"),
    [
        (introspect(" ".join(f"a{n}: __schema {{ ...All }}" for n in range(49))), ONCE),
        (introspect("__schema { ...All } " * 49), ONCE),
        (
            introspect(" ".join(f"...F{n}" for n in range(49)))
            + " ".join(
                f"fragment F{n} on Query {{ a{n}: __schema {{ ...All }} }}" for n in range(49)
            ),
            ONCE,
        ),
        (
            "{" + " ".join(f'a{n}: __type(name: "Query") {{ name }}' for n in range(9)) + "}",
            TYPES,
        ),
        ("{ __schema { types { a: fields { name } b: fields { name } } } }", NO_ALIAS),
        ("{ __schema { ...A } } fragment A on __Schema { a: types { name } }", NO_ALIAS),
        ("{ __schema { types { ... { ... on __Type { a: fields { name } } } } } }", NO_ALIAS),
        ("{ __schema { types @stream { name } } }", NO_PATCHES),
        ("{ __schema { types { ... @defer { name } } } }", NO_PATCHES),
        (
            "{ __schema { types { ...A @defer } } } fragment A on __Type { name }",
            NO_PATCHES,
        ),
    ],
    ids=[
        *("aliases", "the same", "fragments", "types", "alias", "alias in a fragment"),
        *("alias in inline fragments", "stream", "defer", "defer of a fragment"),
    ],
)
def test_the_schema_is_told_once_and_whole(text: str, reason: str) -> None:
    assert reasons(text) == [reason]


@in_one_test(
    "text",
    [
        "{ __schema { types { fields { type { fields { type { fields { name } } } } } } } }",
        "{ __schema { types { ...A } } } fragment A on __Type { fields { type { ...B } } } "
        "fragment B on __Type { fields { type { interfaces { name } } } }",
    ],
    ids=["fields", "fragments"],
)
def test_lists_of_the_schema_are_not_nested_without_end(text: str) -> None:
    assert reasons(text) == ["Maximum introspection depth exceeded"]


PRE_INTROSPECTION = " ".join(
    f'a{n}: __type(name: "__Type") {{ name fields {{ name args {{ name }} }} }}' for n in range(8)
)
"""As Apollo Kotlin and Strawberry Shake ask first what a server can be asked."""


@in_one_test(
    "text",
    [
        get_introspection_query(),
        get_introspection_query(
            descriptions=True,
            specified_by_url=True,
            directive_is_repeatable=True,
            schema_description=True,
            input_value_deprecation=True,
            experimental_directive_deprecation=True,
            one_of=True,
            type_depth=9,
        ),
        "{" + PRE_INTROSPECTION + "}",
    ],
    ids=["as it was", "with all options", "types of introspection"],
)
def test_tools_may_ask_for_the_schema(text: str) -> None:
    known = Documents(SCHEMA)

    assert read(known, text).errors == []
