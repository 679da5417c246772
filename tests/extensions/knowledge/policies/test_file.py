"""Policies come from files by their extension, and are read anew when these change."""

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from copilot_runtime.base.errors import ConfigurationFailed, MissingPackage, Misuse
from copilot_runtime.extensions.knowledge.access import AccessAction, Actor
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.policies import (
    ALLOW_ALL,
    Decision,
    Policy,
    PolicyFile,
    load_policy,
)
from copilot_runtime.extensions.knowledge.policies.document import read_rules
from tests.extensions.knowledge.policies.places import ANN, PAGE, write
from tests.in_one_test import in_one_test

OPEN, CLOSED, BROKEN = "default: allow", "default: deny ", "default: maybe"


class Clock:
    """A time that only a test moves on."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def rewrite(path: Path, text: str, clock: Clock, later: int = 1) -> None:
    """Change a file, and let pass the time after which a change is taken."""
    stamp = path.stat().st_mtime_ns + later
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(stamp, stamp))
    look(path, clock)


def look(path: Path, clock: Clock) -> None:
    for _ in range(2):
        clock.now += 1
        policies[path].refresh()


policies: dict[Path, PolicyFile] = {}


def follow(path: Path, clock: Clock) -> PolicyFile:
    policies[path] = PolicyFile(path, read_rules, clock=clock, now=clock)
    return policies[path]


@in_one_test("later", [1, 0], ids=["newer", "of the same time and size"])
def test_a_file_that_changes_changes_the_policy_also_for_who_holds_an_access(
    tmp_path: Path, later: int
) -> None:
    clock = Clock()
    path = write(tmp_path, OPEN)
    policy = follow(path, clock)
    access = policy.access(ANN, "read")
    key, generation = access.key, policy.generation
    assert access.allows(PAGE)

    rewrite(path, CLOSED, clock, later)

    assert not access.allows(PAGE)
    assert access.judge([PAGE]) == policy.judge(ANN, "read", [PAGE]) == [False]
    assert not policy.decide(ANN, "read", PAGE).allowed
    assert access.key != key
    assert policy.generation != generation
    policy.close()


def test_a_change_is_taken_only_once_it_has_stayed_for_a_moment(tmp_path: Path) -> None:
    clock = Clock()
    path = write(tmp_path, CLOSED)
    policy = follow(path, clock)
    path.write_text(OPEN)
    os.utime(path, (1, 1))

    clock.now += 0.1
    assert not policy.decide(ANN, "read", PAGE).allowed  # nobody has looked
    clock.now += 1
    assert not policy.decide(ANN, "read", PAGE).allowed  # it may be half of a file
    path.write_text(OPEN + "\nrules: []")
    os.utime(path, (2, 2))
    clock.now += 1
    assert not policy.decide(ANN, "read", PAGE).allowed  # it has changed again
    clock.now += 0.6
    assert policy.decide(ANN, "read", PAGE).allowed


def test_the_first_who_asks_after_an_idle_time_is_answered_by_the_file_of_now(
    tmp_path: Path,
) -> None:
    clock = Clock()
    path = write(tmp_path, OPEN)
    policy = follow(path, clock)
    access = policy.access(ANN, "read")
    assert access.allows(PAGE)

    path.write_text(CLOSED)
    os.utime(path, (1, 1))
    clock.now = 20

    assert not access.allows(PAGE)


def test_after_an_idle_time_what_was_written_just_now_may_be_half_of_a_file(
    tmp_path: Path,
) -> None:
    clock = Clock()
    path = write(tmp_path, CLOSED)
    policy = follow(path, clock)

    path.write_text(OPEN)
    os.utime(path, (19.5, 19.5))
    clock.now = 20
    assert not policy.decide(ANN, "read", PAGE).allowed
    clock.now = 20.4
    assert not policy.decide(ANN, "read", PAGE).allowed  # nobody has looked
    clock.now = 20.6
    assert policy.decide(ANN, "read", PAGE).allowed


def test_a_folder_whose_files_come_and_go_may_be_half_of_a_policy(tmp_path: Path) -> None:
    clock = Clock()
    path = write(tmp_path, CLOSED)
    policy = PolicyFile(tmp_path, lambda folder: read_rules(path), clock=clock, now=clock)

    path.write_text(OPEN)
    os.utime(path, (1, 1))  # an old file was moved here
    os.utime(tmp_path, (19.5, 19.5))
    clock.now = 20
    assert not policy.decide(ANN, "read", PAGE).allowed
    clock.now = 40
    assert policy.decide(ANN, "read", PAGE).allowed


def test_who_asks_while_another_reads_a_new_policy_waits_for_it(tmp_path: Path) -> None:
    clock = Clock()
    path = write(tmp_path, OPEN)
    reading, go_on, asking = Event(), Event(), Event()

    def read(path: Path) -> Policy:
        if clock.now:
            reading.set()
            assert go_on.wait(30)
        return read_rules(path)

    def ask() -> bool:
        asking.set()
        return policy.decide(ANN, "read", PAGE).allowed

    policy = PolicyFile(path, read, clock=clock, now=clock)
    path.write_text(CLOSED)
    os.utime(path, (1, 1))
    clock.now = 20
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask)
        assert reading.wait(30)
        asking.clear()
        second = pool.submit(ask)
        assert asking.wait(30)
        with pytest.raises(TimeoutError):
            second.result(0.05)
        go_on.set()
        assert (first.result(30), second.result(30)) == (False, False)


def test_a_broken_file_leaves_the_rules_of_before_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    path = write(tmp_path, CLOSED)
    policy = follow(path, clock)

    rewrite(path, BROKEN, clock)
    look(path, clock)

    assert not policy.decide(ANN, "read", PAGE).allowed
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "rules of before" in caplog.text
    assert f"{path}, line 1, column 10: 'maybe'" in caplog.text

    caplog.clear()
    path.unlink()
    look(path, clock)
    look(path, clock)
    assert not policy.decide(ANN, "read", PAGE).allowed
    assert [record.levelname for record in caplog.records] == ["ERROR"]

    path.mkdir()
    clock.now = path.stat().st_mtime + 2
    look(path, clock)
    assert "policy.yml: the folder has no file of rules" in caplog.text
    path.rmdir()

    caplog.set_level(logging.INFO)
    write(tmp_path, f"{OPEN}\nrules: [{{deny: read, files: absent}}]")
    look(path, clock)
    assert policy.decide(ANN, "read", PAGE).allowed
    assert "has changed and applies" in caplog.text
    assert "the rule on line 2 names 'absent', which is no file or folder" in caplog.text


class Panic(BaseException):
    """What native code raises: no `Exception`."""


@in_one_test("error", [ValueError("a bug"), Panic("a bug")])
def test_a_reader_that_fails_leaves_the_rules_of_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    clock = Clock()
    path = write(tmp_path, CLOSED)

    def read(path: Path) -> Policy:
        if clock.now:
            raise error
        return read_rules(path)

    policies[path] = policy = PolicyFile(path, read, clock=clock, now=clock)
    access = policy.access(ANN, "read")
    rewrite(path, OPEN, clock)

    assert not access.allows(PAGE)
    assert "rules of before" in caplog.text
    assert "what reads it failed" in caplog.text
    with pytest.raises(ConfigurationFailed, match=r"what reads it failed: .*a bug"):
        PolicyFile(path, read)


def test_a_policy_that_cannot_be_closed_gives_way_to_the_next_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Sticky(Moody):
        def close(self) -> None:
            raise OSError("it holds on")

    clock = Clock()
    path = write(tmp_path, OPEN)
    policies[path] = policy = PolicyFile(
        path, lambda path: read_rules(path) if clock.now else Sticky([]), clock=clock, now=clock
    )
    rewrite(path, CLOSED, clock)

    assert not policy.decide(ANN, "read", PAGE).allowed
    assert "could not be closed" in caplog.text


def test_an_access_answers_without_a_wait_only_while_no_look_is_due(tmp_path: Path) -> None:
    clock = Clock()
    policy = follow(write(tmp_path, OPEN), clock)
    access = policy.access(ANN, "read")
    assert access.immediate is None  # its rules are not compiled yet
    assert access.allows(PAGE)
    assert access.immediate is not None
    assert access.immediate.allows(PAGE)
    assert access.immediate.key == access.key

    clock.now += 1

    assert access.immediate is None


def test_what_is_no_policy_is_refused_with_a_way_out(tmp_path: Path) -> None:
    def refuse(path: Path) -> str:
        with pytest.raises(ConfigurationFailed) as raised:
            load_policy(path)
        return f"{raised.value.message} {raised.value.hint}"

    assert "There is no policy" in refuse(tmp_path / "none.yml")
    assert "no rules. The kinds of policies are .cedar, .rego, .yaml, .yml" in refuse(tmp_path)
    assert "no rules" in refuse(write(tmp_path, "", "policy.txt"))
    write(tmp_path, "", "a.rego")
    write(tmp_path, "", "b.cedar")
    assert "files of several kinds: cedar, rego" in refuse(tmp_path)


def test_a_folder_may_have_one_file_of_rules_in_yaml(tmp_path: Path) -> None:
    write(tmp_path, OPEN, "rules.yaml")

    assert load_policy(str(tmp_path)).decide(ANN, "read", PAGE).allowed
    write(tmp_path, OPEN, "more.yaml")
    with pytest.raises(ConfigurationFailed, match="several files"):
        load_policy(tmp_path)


@in_one_test(("kind", "package"), [("cedar", "cedarpy"), ("rego", "regopy")])
def test_without_its_package_a_kind_of_policy_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, package: str
) -> None:
    path = write(tmp_path, "package copilot", f"policy.{kind}")
    monkeypatch.setitem(__import__("sys").modules, package, None)

    with pytest.raises(MissingPackage, match=rf"needs the package '{package}'.*\[{kind}\]"):
        load_policy(path)


class Moody(Policy):
    """A policy of somebody's own, with mistakes."""

    def __init__(self, answers: Sequence[object]) -> None:
        self.answers = answers

    def decide(self, actor: Actor, action: AccessAction, uri: str) -> Decision:
        if uri == "boom":
            raise ValueError("out of order")
        return Decision(True, "in a good mood")

    def judge(self, actor: Actor, action: AccessAction, uris: object) -> list[bool]:
        return [*self.answers] if self.answers else super().judge(actor, action, uris)  # type: ignore


def test_a_policy_that_fails_or_gives_no_boolean_denies_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    access = Moody([]).access(ANN, "read")
    assert access.judge(["a", "b"]) == [True, True]
    assert access.judge(["a", "boom"]) == [False, False]
    assert not access.allows("boom")
    assert caplog.messages == ["Moody failed and denies: ValueError('out of order')"]

    assert Moody(["yes", 1, None, True]).access(ANN, "read").judge("abcd") == [
        False,
        False,
        False,
        True,
    ]
    assert Moody([True]).access(ANN, "read").judge("ab") == [False, False]


def test_copilot_lds_question_is_answered(tmp_path: Path) -> None:
    closed = load_policy(write(tmp_path, "rules: [{allow: read, resources: common.Message.*}]"))
    message = Identifier("common.Message", "m")

    assert ALLOW_ALL.evaluate({"actor": "common.System.root", "resources": ["a"]})
    assert closed.evaluate({"actor": "x", "resources": []})
    assert closed.evaluate({"actor": "x", "resources": ["cld:common.Message.m", message]})
    assert closed.evaluate(
        {"actor": "x", "resources": [{"type": "common.Message", "name": "m", "parent": ""}]}
    )
    assert not closed.evaluate({"actor": "x", "resources": [message, "a.B.c"]})


@in_one_test(
    ("request_", "message"),
    [
        (None, "input is required"),
        ("x", "input is required"),
        ({}, "input.actor must be a non-empty string"),
        ({"actor": ""}, "input.actor must be a non-empty string"),
        ({"actor": 1, "resources": []}, "input.actor must be a non-empty string"),
        ({"actor": "x"}, "input.resources must be an array"),
        ({"actor": "x", "resources": "a"}, "input.resources must be an array"),
        ({"actor": "x", "resources": [1]}, "Resource type must not be null"),
    ],
)
def test_a_question_that_is_none_is_refused(request_: object, message: str) -> None:
    with pytest.raises(Misuse, match=message):
        ALLOW_ALL.evaluate(request_)
