"""`copilot-runtime operate keys`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from copilot_runtime.base.errors import ConfigurationFailed, NotFound
from copilot_runtime.cli.main import cli
from tests.in_one_test import in_one_test

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COPILOT_ACCESS_ROLES", '{"guest": ["threads:read"]}')
    return lambda *arguments: CliRunner().invoke(cli, ["operate", "keys", *arguments])


def listed(run: Run, *arguments: str) -> list[dict[str, object]]:
    return json.loads(run("list", "--json", *arguments).stdout)


def test_a_key_is_shown_once(run: Run) -> None:
    made = run("create", "ci", "--user", "ada", "--tenant", "acme", "--role", "guest")
    text = made.stdout.strip()
    table = run("list", "--all").stdout

    assert made.exit_code == 0
    assert "not shown again" in made.stderr
    assert text.startswith("cpk_")
    assert text[:20] in table
    assert text[21:] not in table + run("list", "--json").stdout


def test_the_command_says_in_which_file_a_key_is(run: Run, tmp_path: Path) -> None:
    assert f"in {tmp_path / '.copilot' / 'access.db'}." in run("create", "ci").stderr
    there = f"sqlite:{tmp_path / 'other.db'}"
    assert f"in {tmp_path / 'other.db'}." in run("create", "ci", "--store", there).stderr


def test_a_key_is_its_own_user_by_default(run: Run) -> None:
    text = run("create", "ci", "--scope", "threads:read", "--expires", "90d").stdout.strip()
    (key,) = listed(run)

    assert key["user"] == f"key:{text.split('_')[1]}"
    assert (key["roles"], key["scopes"]) == (["user"], ["threads:read"])
    assert (key["state"], key["used_at"]) == ("active", None)


def test_a_key_is_revoked_by_its_beginning_its_name_or_the_whole(run: Run) -> None:
    texts = [run("create", name).stdout.strip() for name in ("one", "two", "three")]
    for text in (texts[0][:20], "two", texts[2]):
        assert "is revoked" in run("revoke", text).stdout

    assert listed(run) == []
    assert [key["state"] for key in listed(run, "--all")] == ["revoked"] * 3
    assert "was revoked before" in run("revoke", texts[0][:20]).stdout


def test_of_two_keys_with_one_name_none_is_revoked(run: Run) -> None:
    for _ in range(2):
        run("create", "ci")

    error = run("revoke", "ci").exception
    assert isinstance(error, NotFound)
    assert "2 keys are called 'ci'" in error.message
    assert len(listed(run)) == 2


@in_one_test(
    ("arguments", "why"),
    [
        ([""], "name of a key"),
        (["x" * 101], "name of a key"),
        (["cpk_x"], "name of a key"),
        (["ci", "--role", "admin"], "no role 'admin'"),
        (["ci", "--scope", "all"], "is not a scope"),
        (["ci", "--tenant", "a/b"], "cannot be a tenant"),
        (["ci", "--user", "tenant:acme/ada"], "cannot be a user"),
        (["ci", "--user", "a\nb"], "control characters"),
        (["ci", "--user", "a\ufffd"], "no text"),
        (["ci", "--expires", "soon"], "no end"),
        (["ci", "--expires", "0d"], "no end"),
        (["ci", "--expires", "2020-01-01"], "is over"),
        (["ci", "--expires", "9999y"], "later than any date"),
        (["ci", "--expires", "9999-12-31T23:59:59.999-01:00"], "later than any date"),
        (["ci", "--user", "x" * 490, "--tenant", "acme"], "longer than 500"),
        (["ci", "--store", "redis://x"], "cannot be kept"),
    ],
)
def test_a_key_that_could_not_be_used_is_not_made(run: Run, arguments: list[str], why: str) -> None:
    error = run("create", *arguments).exception

    assert isinstance(error, ConfigurationFailed)
    assert why in error.message
    assert listed(run, "--all") == []


def test_a_default_role_that_is_misspelt_gets_into_no_key(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPILOT_ACCESS_DEFAULT_ROLES", "nope")
    error = run("create", "ci").exception
    monkeypatch.delenv("COPILOT_ACCESS_DEFAULT_ROLES")

    assert isinstance(error, ConfigurationFailed)
    assert "'nope' is not a role; known roles: operator, user, reader, guest." in error.message
    assert listed(run, "--all") == []


def test_a_key_that_is_not_there_cannot_be_revoked(run: Run) -> None:
    error = run("revoke", "cpk_0123456789abcdef_secret").exception

    assert isinstance(error, NotFound)
    assert "secret" not in error.message


def test_a_new_key_says_if_no_server_takes_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "No server takes keys yet" in run("create", "ci").stderr
    monkeypatch.setenv("COPILOT_ACCESS_AUTHENTICATE", "api_keys")
    assert "No server" not in run("create", "ci").stderr
