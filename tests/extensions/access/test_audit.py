"""The audit log: what is in it, what is not, and that no change of it goes unnoticed."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from copilot_runtime import Settings
from copilot_runtime.adapters.scripted import Gate
from copilot_runtime.base.errors import ConfigurationFailed, NotFound
from copilot_runtime.cli.main import cli
from copilot_runtime.extensions.access.api_keys.key import generate_key
from copilot_runtime.extensions.access.audit.entry import AuditRecord
from copilot_runtime.extensions.access.audit.log import AuditLog, RefusalCounter, list_files
from copilot_runtime.extensions.access.audit.verify import verify
from tests.extensions.access.credentials import KEY, Entrance, entering, issue_key, settings_of
from tests.extensions.access.test_scopes import gql
from tests.in_one_test import in_one_test
from tests.wire.client import chat
from tests.wire_agui.http import user
from tests.wire_agui.server import Parrot

pytestmark = pytest.mark.anyio


def record_of(number: int = 0, **fields: Any) -> AuditRecord:
    given: dict[str, Any] = {"action": f"act.{number}", "outcome": "allowed", **fields}
    return AuditRecord(**given)


def read(path: Path) -> list[dict[str, Any]]:
    lines = [line for file in list_files(path) for line in file.read_bytes().splitlines()]
    return [json.loads(line) for line in lines]


def audited(path: Path, **audit: Any) -> Settings:
    return settings_of(path, audit={"file": str(path / "audit.jsonl"), **audit})


async def log_of(server: Entrance, path: Path) -> list[tuple[Any, ...]]:
    await server.runtime.get(AuditLog).flush()
    names = ("user", "method", "action", "thread", "outcome")
    return [tuple(line.get(name) for name in names) for line in read(path / "audit.jsonl")]


async def test_who_did_what_on_which_thread_is_written_down(tmp_path: Path) -> None:
    async with entering(tmp_path, settings=audited(tmp_path)) as server:
        ada = server.bearer(await issue_key(server.keys, "ada", "acme"))
        for _ in range(2):
            await ada.run(thread="t1")
        await ada.ask("GET", "/threads")
        await ada.ask("PATCH", "/threads/t1", {"name": "Mine"})
        await ada.ask("DELETE", "/threads/t1")
        await ada.ask("DELETE", "/threads/t2")
        await ada.ask("POST", "", chat(threadId="t3"))
        await gql(ada, 'mutation { stopCopilotResponse(runId: "x") }')
        await gql(ada, "{ hello }")
        await gql(ada, "mutation { openTheSafe }")  # which there is not
        found = await log_of(server, tmp_path)
        (start, *_) = read(tmp_path / "audit.jsonl")

    ada = "tenant:acme/ada"
    assert found == [
        (ada, "api_key", "run.start", "t1", "allowed"),
        (ada, "api_key", "run.end", "t1", "finished"),
        (ada, "api_key", "run", "t1", "allowed"),
        (ada, "api_key", "change thread", "t1", "allowed"),
        (ada, "api_key", "delete thread", "t1", "allowed"),
        (ada, "api_key", "delete thread", "t2", "refused"),
        (ada, "api_key", "run.start", "t3", "allowed"),
        (ada, "api_key", "run.end", "t3", "finished"),
        (ada, "api_key", "mutation stopCopilotResponse", None, "allowed"),
    ]
    assert (start["address"], start["agent"], len(start["key"])) == ("127.0.0.1", "default", 16)


async def test_a_request_that_comes_again_is_written_down_with_its_run(tmp_path: Path) -> None:
    async with entering(tmp_path, settings=audited(tmp_path)) as server:
        ada = server.bearer(await issue_key(server.keys, "ada"))
        for _ in range(2):
            await ada.run(thread="t", run="r7")
        await log_of(server, tmp_path)
    lines = [(line["action"], line.get("run")) for line in read(tmp_path / "audit.jsonl")]

    assert lines == [("run.start", "r7"), ("run.end", "r7"), ("run", "r7")]


async def test_what_was_not_let_in_at_the_url_itself_is_a_method_alone(tmp_path: Path) -> None:
    async with entering(tmp_path, settings=audited(tmp_path)) as server:
        await gql(server.browser(), "{ hello }")
        found = await log_of(server, tmp_path)

    assert found == [(None, None, "POST", None, "refused")]


async def test_what_was_refused_is_written_down_with_the_reason(tmp_path: Path) -> None:
    settings = audited(tmp_path).model_copy(
        update={"limits": Settings.model_validate({"limits": {"requests_per_key": "2/day"}}).limits}
    )
    async with entering(tmp_path, settings=settings) as server:
        text = await issue_key(server.keys, "ada", scopes=["threads:read"])
        key = text[4:20]
        await server.bearer(text[:-4] + "AAAA").run(thread="t")
        await server.bearer(text).run(thread="t")
        await gql(server.bearer(text), 'mutation { stopCopilotResponse(runId: "x") }')
        await server.bearer(text).ask("GET", "/threads")
        await log_of(server, tmp_path)
        lines = read(tmp_path / "audit.jsonl")

    assert [(line["outcome"], line["reason"].partition(":")[0]) for line in lines] == [
        ("refused", f"the secret of cpk_{key} is another one"),
        ("refused", "FORBIDDEN"),
        ("refused", "FORBIDDEN"),
        ("refused", "LIMIT_EXCEEDED"),
    ]
    assert text[21:] not in (tmp_path / "audit.jsonl").read_text()


async def test_whose_credential_was_refused_is_written_down_if_it_is_theirs(
    tmp_path: Path,
) -> None:
    async with entering(tmp_path, settings=audited(tmp_path)) as server:
        old = KEY.sign(sub="ann", exp=1)
        head, claims, _ = KEY.sign(sub="forged", exp=1).split(".")
        revoked = await issue_key(server.keys, "ada", "acme", revoked_at=1.0)
        for token in (
            *(old, KEY.sign(sub="bob", aud="another"), f"{head}.{claims}.{old.split('.')[2]}"),
            *(revoked, revoked[:-4] + "AAAA", KEY.sign(sub="tenant:acme/ada", exp=1)),
        ):
            await server.bearer(token).ask("GET", "/threads")
        await log_of(server, tmp_path)
        lines = read(tmp_path / "audit.jsonl")

    assert [(line.get("user"), line["reason"].replace(revoked[:20], "KEY")) for line in lines] == [
        ("ann", "Token expired"),
        ("bob", "the audience is 'another'"),
        (None, "Invalid signature"),
        ("tenant:acme/ada", "KEY is revoked"),
        (None, "the secret of KEY is another one"),
        (None, "Token expired"),
    ]
    assert {(line["outcome"], line["status"], line.get("method")) for line in lines} == {
        ("refused", 401, None)
    }
    assert lines[3]["key"] == revoked[4:20]


async def test_questions_are_written_down_only_if_that_is_allowed(tmp_path: Path) -> None:
    for allowed in (False, True):
        async with entering(tmp_path, settings=audited(tmp_path, content=allowed)) as server:
            browser = server.bearer(await issue_key(server.keys, "ada"))
            await browser.run(thread="t", run=f"r{allowed}", messages=[user("My secret question")])
            await log_of(server, tmp_path)
        text = (tmp_path / "audit.jsonl").read_text()
        assert ("My secret question" in text) == allowed


async def test_a_run_that_is_stopped_or_fails_is_written_down_so(tmp_path: Path) -> None:
    gate = Gate()
    async with entering(tmp_path, Parrot(gate=gate), audited(tmp_path)) as server:
        ada = server.bearer(await issue_key(server.keys, "ada"))
        async with ada.running(thread="t") as answer:
            await answer.next()
            await ada.stop("t")
            await answer.rest()
        found = await log_of(server, tmp_path)

    assert [line[2:] for line in found] == [
        ("run.start", "t", "allowed"),
        ("stop", "t", "allowed"),
        ("run.end", "t", "stopped"),
    ] or [line[2:] for line in found] == [
        ("run.start", "t", "allowed"),
        ("run.end", "t", "stopped"),
        ("stop", "t", "allowed"),
    ]


async def test_reads_are_written_down_if_that_is_wanted(tmp_path: Path) -> None:
    async with entering(tmp_path, settings=audited(tmp_path, reads=True)) as server:
        ada = server.bearer(await issue_key(server.keys, "ada"))
        await ada.ask("GET", "/threads")
        await ada.connect("t")
        found = await log_of(server, tmp_path)

    assert [line[2] for line in found] == ["list threads", "connect"]


async def test_who_is_refused_behind_a_proxy_has_an_address_of_their_own(tmp_path: Path) -> None:
    settings = audited(tmp_path)
    proxied = settings.proxy.model_copy(update={"addresses": ("127.0.0.1",)})
    settings = settings.model_copy(update={"proxy": proxied})
    async with entering(tmp_path, settings=settings) as server:
        for _ in range(25):  # more than are written of one address
            await server.browser(x_forwarded_for="198.51.100.7").ask("GET", "/threads")
        two = {"x-forwarded-for": "10.9.9.9, 203.0.113.9", "X-Forwarded-For": "127.0.0.1"}
        await server.browser().ask("GET", "/threads", headers=two)
        await log_of(server, tmp_path)
        lines = read(tmp_path / "audit.jsonl")

    assert [line["address"] for line in lines] == [*["198.51.100.7"] * 20, "203.0.113.9"]


async def test_whoever_guesses_does_not_push_out_what_others_did(tmp_path: Path) -> None:
    async with entering(tmp_path, settings=audited(tmp_path)) as server:
        for _ in range(60):
            await server.bearer("cpk_wrong").ask("GET", "/info")
        found = await log_of(server, tmp_path)

    assert 20 <= len(found) <= 40


async def test_whoever_is_sent_away_while_keys_cannot_be_read_pushes_nobody_out(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    store = {"store": f"sqlite:{tmp_path}/file/access.db"}
    settings = settings_of(tmp_path, audit={"file": str(tmp_path / "audit.jsonl")}, api_keys=store)
    async with entering(tmp_path, settings=settings) as server:
        stranger = server.bearer(generate_key().text)
        statuses = [(await stranger.ask("GET", "/info")).status for _ in range(60)]
        found = await log_of(server, tmp_path)

    assert statuses == [503] * 60
    assert 20 <= len(found) <= 40


async def test_whoever_is_refused_again_and_again_does_not_push_out_what_others_did(
    tmp_path: Path,
) -> None:
    settings = audited(tmp_path).model_copy(
        update={
            "limits": Settings.model_validate({"limits": {"requests_per_key": "60/day"}}).limits
        }
    )
    async with entering(tmp_path, settings=settings) as server:
        ada = server.bearer(await issue_key(server.keys, "ada"))
        statuses = [(await ada.ask("DELETE", f"/threads/{n}")).status for n in range(70)]
        eve = server.bearer(await issue_key(server.keys, "eve"))
        await eve.ask("DELETE", "/threads/t")
        found = await log_of(server, tmp_path)

    assert (statuses.count(404), statuses.count(429)) == (60, 10)
    assert 21 <= len([line for line in found if line[0] == "ada"]) <= 42
    assert [line[0] for line in found if line[0] != "ada"] == ["eve"]


def test_what_was_left_out_is_counted_in_a_later_minute_and_subjects_are_bounded() -> None:
    now = 0.0
    counter = RefusalCounter(lambda: now)
    limit = record_of(user="ada", outcome="refused", reason="LIMIT_EXCEEDED: Too much.")
    guesses = [record_of(address=f"10.{n >> 8}.{n & 255}.1") for n in range(20_000)]

    assert [counter.count(limit) for _ in range(4)] == [0, -1, -1, -1]
    assert [counter.count(one) for one in guesses].count(0) < 10_050
    now = 300.0
    assert [counter.count(limit) for _ in range(2)] == [3, -1]


async def test_a_file_has_the_bytes_it_may_have_whatever_ids_are_written_in(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", max_bytes=20_000, max_files=100)
    for text in ("x", "ü", "😀", "\x01", "\ud800", "\x85", "\u2028"):
        for number in range(20):
            log.record(record_of(number, thread=text * 100_000, user=text * 400, agent=text))
    await log.aclose()
    sizes = [file.stat().st_size for file in list_files(log.path)]
    lines = max(map(len, log.path.read_bytes().splitlines()))

    assert verify(log.path).problems == []
    assert len([line for line in read(log.path) if line["action"] != "log.rotate"]) == 140
    assert max(sizes) <= 20_000 + 6_000
    assert lines <= 6_000


def fill(path: Path, count: int = 10, **options: Any) -> AuditLog:
    log = AuditLog(path, **options)
    for number in range(count):
        log.write([record_of(number, user="ada")])
    return log


def test_only_its_owner_can_read_a_log_and_what_is_beside_it(tmp_path: Path) -> None:
    AuditLog(tmp_path / "a.jsonl", max_bytes=1).write([record_of()])
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}

    assert modes == dict.fromkeys(("a.jsonl", "a-000000000001.jsonl", "a.jsonl.lock"), 0o600)


def test_a_log_is_intact_also_over_several_files(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    fill(path, 100, max_bytes=4096)
    found = verify(path)

    assert found.problems == []
    assert len(list_files(path)) > 3
    assert found.lines == found.head.number > 100
    assert verify(path, head=found.head).is_intact


def _change_text(lines: list[bytes]) -> list[bytes]:
    return [line.replace(b'"ada"', b'"eve"') if b"act.4" in line else line for line in lines]


CHANGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "a text": _change_text,
    "a line taken away": lambda lines: lines[:4] + lines[5:],
    "the first taken away": lambda lines: lines[1:],
    "two exchanged": lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]],
    "one twice": lambda lines: [*lines[:5], lines[4], *lines[5:]],
    "one put in": lambda lines: [*lines[:4], b"{}", *lines[4:]],
    "no JSON": lambda lines: [*lines[:4], b"x", *lines[5:]],
    "a hash": lambda lines: [
        *lines[:4],
        lines[4].replace(b'"hash":"', b'"hash":"0')[:-3] + b'"}',
        *lines[5:],
    ],
    "the end cut off": lambda lines: lines[:-2],
}


@in_one_test("change", CHANGES)
def test_no_change_goes_unnoticed(tmp_path: Path, change: str) -> None:
    path = tmp_path / "audit.jsonl"
    fill(path)
    head = verify(path).head
    lines = CHANGES[change](path.read_bytes().splitlines())
    path.write_bytes(b"\n".join(lines) + b"\n")

    found = verify(path, head=head)
    assert not found.is_intact or (change == "the first taken away" and found.first == 2)


def test_with_a_key_nobody_else_can_write_the_log_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    fill(path, key="secret")
    assert verify(path, "secret").is_intact
    path.unlink()
    fill(path)  # by somebody who may write the file

    assert not verify(path, "secret").is_intact


def test_a_line_that_was_written_half_is_cut_off_and_the_chain_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit.jsonl"
    fill(path, 3)
    with path.open("ab") as file:
        file.write(b'{"number": 4, "ac')
    fill(path, 2)

    assert verify(path).problems == []
    assert verify(path).lines == 5
    assert "written half" in caplog.text


def test_files_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    fill(path, 150, max_bytes=4096, max_files=3)
    found = verify(path)

    assert len(list_files(path)) == 3
    assert found.is_intact
    assert found.first > 1


BREAKS = "".join(map(chr, (0x85, 0x9B, 0x2028, 0x2029)))


def test_no_id_looks_like_a_line_of_its_own(run: "Run", tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    given = f'ann{BREAKS}{{"number":2}}'
    AuditLog(path).write([record_of(number, user=given) for number in range(2)])
    text = path.read_text("utf-8")

    assert len(text.splitlines()) == 2
    assert [json.loads(line)["user"] for line in text.splitlines()] == [given] * 2
    assert len(run("operate", "audit", "export").stdout.splitlines()) == 2
    assert verify(path).problems == []


def test_a_log_that_has_such_an_id_as_it_is_goes_on_with_its_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    AuditLog(path).write([record_of(user=f"ann{BREAKS}")])
    before = path.read_text("utf-8")
    raw = before.encode().decode("unicode_escape")  # as lines were written before
    path.write_text(raw, "utf-8")
    AuditLog(path).write([record_of(1, user=f"ann{BREAKS}")])

    assert raw != before
    assert (verify(path).problems, verify(path).lines) == ([], 2)


def test_several_processes_write_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    program = (
        "import sys; from pathlib import Path;"
        "from tests.extensions.access.test_audit import fill; "
        "fill(Path(sys.argv[1]), 40, max_bytes=8192)"
    )
    command = [sys.executable, "-c", program, str(path)]
    writers = [subprocess.Popen(command, env={**os.environ}) for _ in range(3)]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]

    found = verify(path)
    assert found.problems == []
    assert len([line for line in read(path) if line["action"] != "log.rotate"]) == 120


async def test_what_cannot_be_written_now_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.access.audit.log._RETRY_SECONDS", 0.01)
    folder = tmp_path / "folder"
    folder.write_text("a file in the way")
    loop, failed = asyncio.get_running_loop(), asyncio.Event()

    def note(*_: object) -> None:
        loop.call_soon(failed.set)

    monkeypatch.setattr("copilot_runtime.extensions.access.audit.log.logger.error", note)
    log = AuditLog(folder / "audit.jsonl")
    log.record(record_of(1))
    await failed.wait()
    folder.unlink()
    log.record(record_of(2))
    await log.aclose()

    assert [line["action"] for line in read(folder / "audit.jsonl")] == ["act.1", "act.2"]


def test_a_line_is_there_once_however_often_the_disk_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = fill(tmp_path / "audit.jsonl", 2)
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fail)
        for _ in range(3):
            with pytest.raises(OSError, match="Input/output"):
                log.write([record_of(2), record_of(3)])
    log.write([record_of(2), record_of(3)])

    assert [line["action"] for line in read(log.path)] == ["act.0", "act.1", "act.2", "act.3"]
    assert verify(log.path).is_intact


@in_one_test("name", ["rename", "unlink"])
def test_a_file_that_cannot_be_rotated_is_written_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    monkeypatch.setattr(Path, name, fail)  # such as one that may only be appended to
    log = fill(tmp_path / "audit.jsonl", 60, max_bytes=4096, max_files=1)
    actions = [line["action"] for line in read(log.path)]

    assert [one for one in actions if one != "log.rotate"] == [f"act.{n}" for n in range(60)]
    assert verify(log.path).is_intact
    assert caplog.text.count("cannot be rotated") == 1


def fail(*_: object) -> None:
    raise OSError(5, "Input/output error")


async def test_a_server_whose_log_cannot_be_written_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("a file in the way")
    log = AuditLog(tmp_path / "folder" / "audit.jsonl")
    with pytest.raises(ConfigurationFailed, match="cannot be written"):
        log.check()


Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COPILOT_AUDIT_FILE", "audit.jsonl")
    return lambda *arguments: CliRunner().invoke(cli, [*arguments])


def test_the_log_is_listed_and_exported_by_what_is_in_it(run: Run, tmp_path: Path) -> None:
    log = fill(tmp_path / "audit.jsonl", 3)
    log.write([record_of(9, user="eve", outcome="refused", reason="No.", thread="t", time=5.0)])

    assert len(json.loads(run("operate", "audit", "list", "--json").stdout)) == 4
    assert "No." in run("operate", "audit", "list", "--user", "eve").stdout
    for option in (("--outcome", "refused"), ("--thread", "t"), ("--action", "act.9")):
        (line,) = run("operate", "audit", "export", *option).stdout.splitlines()
        assert json.loads(line)["user"] == "eve"
    assert run("operate", "audit", "export", "--since", "2026-01-01").stdout == ""


@pytest.mark.parametrize(
    ("since", "count"),
    [
        ("1970-01-01 00:01", 2),
        ("1970-01-01T00:01:00Z", 2),
        ("1970-01-01T01:00+01:00", 3),
        ("1970-01-01T00:01:01", 1),
    ],
)
def test_a_time_may_be_written_in_any_form_of_iso_8601(
    run: Run, tmp_path: Path, since: str, count: int
) -> None:
    AuditLog(tmp_path / "audit.jsonl").write([record_of(time=t) for t in (0.0, 60.0, 120.0)])

    assert len(run("operate", "audit", "export", "--since", since).stdout.splitlines()) == count


@pytest.mark.parametrize("option", [("--since", "yesterday"), ("--outcome", "denied")])
def test_what_can_fit_no_line_is_refused(run: Run, tmp_path: Path, option: tuple[str, str]) -> None:
    fill(tmp_path / "audit.jsonl", 1)

    assert isinstance(run("operate", "audit", "list", *option).exception, ConfigurationFailed)


def test_a_log_is_verified_by_a_command(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    fill(path)
    good = run("operate", "audit", "verify")
    head = good.stdout.splitlines()[-1]
    assert (good.exit_code, good.stdout.startswith("10 lines")) == (0, True)
    assert "There is no audit.key" in good.stdout
    assert run("operate", "audit", "verify", "--head", head).exit_code == 0
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))

    assert run("operate", "audit", "verify").exit_code == 0
    cut = run("operate", "audit", "verify", "--head", head)
    assert (cut.exit_code, "cut off" in cut.stdout) == (1, True)


def test_a_file_that_is_no_audit_log_is_named_and_left_alone(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text("notes of mine\n")
    done = run("operate", "keys", "create", "ci")

    assert done.exit_code == 0
    assert "'audit.jsonl' was not written: its last line is none of an audit log" in done.stderr
    with pytest.raises(ConfigurationFailed, match="move the file away"):
        AuditLog(path).check()
    assert path.read_text() == "notes of mine\n"


def test_keys_that_are_made_and_revoked_are_written_down(run: Run, tmp_path: Path) -> None:
    text = run("operate", "keys", "create", "ci").stdout.strip()
    run("operate", "keys", "revoke", "ci")
    lines = read(tmp_path / "audit.jsonl")

    assert [line["action"] for line in lines] == ["keys.create", "keys.revoke"]
    assert lines[0]["reason"].startswith(text[:20])
    assert text[21:] not in (tmp_path / "audit.jsonl").read_text()


def test_the_line_of_a_key_says_whose_it_is_and_what_it_may_do(run: Run, tmp_path: Path) -> None:
    run(
        "operate",
        "keys",
        "create",
        "ci",
        "--user",
        "ann",
        "--tenant",
        "acme",
        "--scope",
        "threads:read",
    )
    run("operate", "keys", "create", "admin", "--role", "operator", "--expires", "2999-01-31")
    run("operate", "keys", "revoke", "ci")
    reasons = [line["reason"].partition(" ")[2] for line in read(tmp_path / "audit.jsonl")]

    assert reasons[0] == reasons[2]
    assert reasons[0] == (
        "(ci) of ann, tenant acme, roles user, scopes threads:read, expires never"
    )
    assert reasons[1].endswith(", roles operator, scopes all, expires 2999-01-31 00:00:00Z")


def test_without_a_log_the_commands_say_what_to_set(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(run("operate", "audit", "list").exception, NotFound)
    monkeypatch.delenv("COPILOT_AUDIT_FILE")
    assert isinstance(run("operate", "audit", "list").exception, ConfigurationFailed)
    assert isinstance(
        run("operate", "audit", "verify", "--head", "x").exception, ConfigurationFailed
    )
