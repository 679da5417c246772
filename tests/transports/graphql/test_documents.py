"""Documents are measured before they are validated, and understood once."""

from time import process_time

import pytest

from copilot_runtime.transports.graphql import documents
from copilot_runtime.transports.graphql.documents import Documents
from tests.transports.graphql.generated import SCHEMA
from tests.wire.documents import AGENTS, CHAT, PLAIN, STATE

ROOT = "generateCopilotResponse(data: $data) { threadId }"


def reasons(
    text: str, max_depth: int = 15, max_aliases: int = 50, max_tokens: int = 5000
) -> list[str]:
    """Return why a document is refused."""
    known = Documents(SCHEMA, max_depth=max_depth, max_aliases=max_aliases, max_tokens=max_tokens)
    return [error.message for error in known.get(text).errors]


def nested(depth: int) -> str:
    return "{ a " * depth + "}" * depth


@pytest.mark.parametrize("text", [CHAT, PLAIN, AGENTS, STATE], ids=["chat", "plain", "a", "s"])
def test_what_clients_send_is_far_from_every_limit(text: str) -> None:
    assert reasons(text, max_depth=9, max_aliases=0, max_tokens=1000) == []


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    "cycle",
    [
        "{ ...A } fragment A on Query { ...A }",
        "{ ...A } fragment A on Query { ...B } fragment B on Query { ...A }",
        "{ ...A } fragment A on Query { x: hello ...B } fragment B on Query { y: hello ...A }",
    ],
)
def test_fragments_in_a_circle_end_with_a_reason(cycle: str) -> None:
    assert any("Cannot spread fragment" in reason for reason in reasons(cycle))


@pytest.mark.parametrize("text", ["{ hello " * 5000, "{ a(b: " + "[" * 5000])
def test_a_document_of_too_many_words_is_not_read_to_its_end(text: str) -> None:
    (reason,) = reasons(text, max_tokens=100)

    assert "100 tokens" in reason


@pytest.mark.parametrize("text", ["{ hello", "", "}", "\x00", "{ hello } }", "query {", "#"])
def test_what_cannot_be_parsed_is_not_even_a_document(text: str) -> None:
    document = Documents(SCHEMA).get(text)

    assert (document.node, document.parsed, len(document.errors)) == (None, False, 1)


def test_a_mutation_may_not_start_runs_without_end() -> None:
    roots = " ".join(f"a{number}: {ROOT}" for number in range(5))

    assert reasons(f"mutation ($data: GenerateCopilotResponseInput!) {{ {roots} }}") == [
        "A mutation may have 4 fields at its root."
    ]


@pytest.mark.parametrize(
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

    assert known.get(CHAT) is known.get(CHAT)
    assert known.plan(known.get(CHAT), None) is known.plan(known.get(CHAT), None) is not None


def test_the_documents_used_longest_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_CACHE_SIZE", 2)
    known = Documents(SCHEMA)
    hello, agents = known.get("{ hello }"), known.get(AGENTS)
    known.get("{ hello }")
    known.get(STATE)

    assert known.get("{ hello }") is hello
    assert known.get(AGENTS) is not agents


@pytest.mark.parametrize(
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

    assert known.get(text).errors == []
    assert known.plan(known.get(text), None) is None


def test_introspection_can_be_forbidden() -> None:
    (error,) = Documents(SCHEMA, introspection=False).get("{ __schema { __typename } }").errors

    assert "introspection" in error.message
