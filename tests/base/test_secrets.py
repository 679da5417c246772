"""What is a secret, by its name, its value and its form."""

from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from copilot_runtime.base.secrets import Redactor, carry_headers, carry_properties, find_secrets
from tests.in_one_test import in_one_test


class _Section(BaseModel):
    token: SecretStr = SecretStr("s3cr3t-of-a-plugin")
    name: str = "ordinary-text-1"


@in_one_test(
    ("value", "secrets"),
    [
        ({"api_key": "sk-ours-1", "model": "gpt-4o-mini"}, {"sk-ours-1"}),
        ({"apiKey": "sk-ours-1", "clientSecret": "sk-ours-2"}, {"sk-ours-1", "sk-ours-2"}),
        (_Section(), {"s3cr3t-of-a-plugin"}),
        ({"headers": {"X-Team": "team-42", "Accept": "text/html;q=0.9"}}, {"team-42"}),
        ({"authorization": "Basic dTpodW50ZXIyaHVudA=="}, {"hunter2hunt", "dTpodW50ZXIyaHVudA=="}),
        ([(b"cookie", b"sid=s1d-of-ann; theme=dark")], {"s1d-of-ann"}),
        ("postgresql://app:p%404ss-word@db/app", {"p%404ss-word", "p@4ss-word"}),
        ("https://t0ken-alone@mcp.example/?x=1&api_key=k3y-too", {"t0ken-alone", "k3y-too"}),
        ("https://mcp.example/s/aB3dE5gH7jK9mN1p/mcp", {"aB3dE5gH7jK9mN1p"}),
        ("https://a.example/openai/deployments/gpt-4o-of-our-team", set[str]()),
        ({"password": "postgres", "tokens_per_key": "200000/day"}, set[str]()),
        (
            {"PWD": "/srv/copilot-42", "OLDPWD": "/srv/copilot-41", "pwd": "hunter2hunt"},
            {"hunter2hunt"},
        ),
    ],
)
def test_secrets_are_found_by_name_and_in_addresses(value: Any, secrets: set[str]) -> None:
    assert {*find_secrets(value)} >= secrets
    assert bool([*find_secrets(value)]) == bool(secrets)


@in_one_test(
    ("text", "shown"),
    [
        ("key sk-known-1, sk%2Dknown%2D1", "key ***, sk%2Dknown%2D1"),
        ("a/b+c=known as a%2Fb%2Bc%3Dknown", "*** as ***"),
        ('{"x": "say \\"known\\" 1"}', '{"x": "***"}'),
        (
            "GET https://u:p@h.example/?city=Oslo&key=x1",
            "GET https://***@h.example/?city=Oslo&key=***",
        ),
        ("redis://u:a/b#c?d@e@[2001:db8::1]:6379/0", "redis://***@[2001:db8::1]:6379/0"),
        ("http://h.example:80/a@b/?a=1;sig=x1#token=x2", "http://h.example:80/a@b/?a=1;sig=***"),
        ("Authorization: Bearer eyJ0.eyJ1.c2ln", "Authorization: Bearer ***"),
        (
            '{"apiKey": "x1-unknown", "sort_key": "2024-01-02", "note": "x1-known"}',
            '{"apiKey": "***", "sort_key": "2024-01-02", "note": "x1-known"}',
        ),
        ("Login(user='ann-1', secret='x\"1-unknown')", "Login(user='ann-1', secret='***')"),
        (
            '{\\"password\\": \\"x1-unknown\\"} password: "not a value, 1"',
            '{\\"password\\": \\"***\\"} password: "not a value, 1"',
        ),
        ("Bearer tokens and Basic authentication", "Bearer tokens and Basic authentication"),
        ("key='" + "\\" * 99, "key='" + "\\" * 99),  # in linear time
    ],
)
def test_a_text_is_shown_without_secrets(text: str, shown: str) -> None:
    redactor = Redactor()
    for secret in ("sk-known-1", "a/b+c=known", 'say "known" 1'):
        redactor.add(secret)
    assert redactor.redact(text) == shown


def test_secrets_of_a_request_are_forgotten_with_the_next_one() -> None:
    redactor = Redactor()
    text = "s1d-of-ann pr0perty-of-ann"
    carry_headers([(b"cookie", b"sid=s1d-of-ann")])
    carry_properties({"authorization": "pr0perty-of-ann"})
    assert redactor.redact(text) == "*** ***"
    carry_headers([])
    assert redactor.redact(text) == text


def test_tokens_that_expire_do_not_displace_the_secrets_of_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("copilot_runtime.base.secrets._MOST", 16)
    redactor = Redactor()
    for number in range(100):
        redactor.add(f"t0ken-{number:03}")
    assert redactor.redact("t0ken-000 t0ken-050 t0ken-099") == "*** t0ken-050 ***"
