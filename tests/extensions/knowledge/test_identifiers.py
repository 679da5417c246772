"""Names of resources: both textual forms, parents, hashes, tokens."""

import pytest

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.knowledge.filter import Filter
from copilot_runtime.extensions.knowledge.identifiers import (
    Identifier,
    contains,
    decode_identifier,
    encode_identifier,
    hash_short,
    hash_values,
    parse_identifier,
)
from copilot_runtime.extensions.knowledge.tokens import count_json_tokens, count_tokens
from tests.in_one_test import in_one_test


@in_one_test("name", ["a.b.c", "a/b", "100%", "%2E", "x:y", "Zoë", "a%2Fb.c/d%25"])
def test_a_name_is_read_as_it_was_written(name: str) -> None:
    identifier = Identifier("common.Message", name, "common.Conversation.c1")
    assert parse_identifier(str(identifier)) == identifier
    assert parse_identifier(identifier.urn) == identifier
    child = Identifier("plan.Task", "t", str(identifier))
    assert parse_identifier(child.urn) == child


def test_a_urn_is_a_uri_in_a_namespace() -> None:
    identifier = Identifier("plan.Task", "t1", "cld:common.Conversation.c1/common.Message.m1")
    assert str(identifier) == "common.Conversation.c1/common.Message.m1/plan.Task.t1"
    assert identifier.urn == f"cld:{identifier}"


@in_one_test("uri", ["", "a", "a.b", "a..b", ".a.b", "a.b.", "cld:", "a.A.1/", "a.A.1/b"])
def test_what_names_nothing_is_refused(uri: str) -> None:
    with pytest.raises(Misuse, match="names no resource"):
        parse_identifier(uri)


def test_an_identifier_has_a_type_and_a_name() -> None:
    with pytest.raises(Misuse, match="Resource name must not be null"):
        Identifier("a.B", "")
    with pytest.raises(Misuse, match=r'must not be null: \{"type":"","name":"n"\}'):
        Identifier("", "n")


def test_a_dotted_type_keeps_its_first_two_words() -> None:
    assert parse_identifier("common.Message.x.y.m1") == Identifier("common.Message", "m1")


def test_an_identifier_is_json_and_back() -> None:
    identifier = Identifier(
        "a.B", "n", "c.D.p", tokens=3, score=0.5, subjects=("https://a.example/1",)
    )
    encoded = encode_identifier(identifier)
    assert [*encoded] == ["type", "name", "parent", "subjects", "tokens", "score"]
    again = decode_identifier(encoded)
    assert (again, again.tokens, again.score, again.subjects) == (
        identifier,
        3,
        0.5,
        ("https://a.example/1",),
    )
    assert encode_identifier(Identifier("a.B", "n")) == {"type": "a.B", "name": "n", "parent": ""}


@in_one_test("value", [None, "a.B.n", {}, {"type": "a.B"}, {"name": "n"}])
def test_json_without_a_name_is_refused(value: object) -> None:
    with pytest.raises(Misuse):
        decode_identifier(value)


def test_a_parent_contains_only_what_is_below_it() -> None:
    assert contains("a.B.c1", "a.B.c1")
    assert contains("a.B.c1", "a.B.c1/d.E.f")
    assert not contains("a.B.c1", "a.B.c10")
    assert not contains("a.B.c1", "a.B.c1x/d.E.f")


def test_long_hashes_begin_with_the_short_ones() -> None:
    assert hash_values("common.Message", "hello").startswith(hash_short("common.Message", "hello"))
    assert len(hash_values("x")) == 32
    assert hash_values("a", "", None, "b") == hash_values("a", "b")


def test_results_are_cut_where_a_budget_ends() -> None:
    found = [Identifier("a.B", name, tokens=tokens) for name, tokens in (("a", 10), ("b", 20))]
    assert Filter(max_tokens=29).cut(found) == found[:1]
    assert Filter(max_tokens=30).cut(found) == found
    assert Filter(limit=1).cut(found) == found[:1]
    with pytest.raises(Misuse, match=r'Identifier missing tokens field: \{"type":"a\.B"'):
        Filter(max_tokens=30).cut([Identifier("a.B", "c")])


def test_a_filter_lets_types_and_prefixes_through() -> None:
    message = Identifier("common.Message", "m1", "common.Conversation.c1")
    assert Filter(type="common.Message", prefix="common.Conversation.c1").matches(message)
    assert not Filter(type="common.Conversation").matches(message)
    assert not Filter(prefix="common.Conversation.c").matches(message)


def test_tokens_are_estimated() -> None:
    assert count_tokens("Hello, world!") == 7
    assert count_tokens("\ufeff \u3000") == 0
    assert count_json_tokens({"a": [1, 2]}) == 3
