"""`copilot-runtime plans start`: a plan grows in a terminal, its questions are asked there."""

import asyncio
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime.extensions.planner.cli.client import PlanClient
from tests.cli.test_cli import CLEAN, COMMAND, answering, run, url_in
from tests.in_one_test import in_one_test
from tests.processes import Program, finished, in_terminal, running

MAIN = """
import asyncio
import os
from pathlib import Path
from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.api.events import Interrupt, Usage
from copilot_runtime.api import Adapter, Agent
from copilot_runtime.testing import call, say

PLANS = {
    "letter": [
        {"name": "text", "purpose": "Write a text."},
        {"name": "send", "purpose": "Send it.", "depends_on": ["text"], "needs_approval": True},
    ],
    "check": [{"name": "text", "purpose": "Write a text.", "evaluation": "It is signed."}],
    "fail": [{"name": "text", "purpose": "Fail."}, {"name": "next", "purpose": "Go on.",
             "depends_on": ["text"]}],
    "wait": [{"name": "text", "purpose": "Wait."}],
    "deep": [
        {"name": "parts \\x1b[2J", "purpose": "Do it.", "subtasks": [
            {"name": f"part {at}", "purpose": "Write a text."} for at in range(20)
        ]}
    ],
    "ask": [{"name": "text", "purpose": "Ask.", "assistant": "clerk"}],
    "long": [{"name": "text", "purpose": "Wait for a file."}],
    "bad": [{"name": "no purpose"}],
}


class Model(Adapter):
    def __init__(self):
        self.verdicts = 0

    async def stream(self, request):
        word = next(m.content for m in reversed(request.messages) if m.type == "text")
        names = [action.name for action in request.actions]
        if "create_plan" in names:
            plan = PLANS.get(word.split()[-1])
            answer = say("Hello!") if plan is None else call("create_plan", {"tasks": plan})
            answer = [*answer, Usage(model="gpt-4o", input_tokens=90, output_tokens=10)]
        elif "report_evaluation" in names:
            is_checked = any("It is signed." in m.content for m in request.messages)
            self.verdicts += is_checked
            bad = {"passed": False, "missing": "The signature."}
            if is_checked:
                bad["tasks"] = [{"name": "sign", "purpose": "Sign it."}]
            is_good = is_checked and self.verdicts % 2 == 0
            answer = call("report_evaluation", {"passed": True} if is_good else bad)
            answer = [*answer, Usage(model="gpt-4o", input_tokens=9, output_tokens=1)]
        else:
            answer = say("Dear Ann, yours Bob")
        for event in answer:
            yield event


class Writer(Agent):
    description = "Writes."

    async def run(self, run):
        text = run.messages[-1].content
        if "Fail." in text:
            raise RuntimeError("no ink")
        if "Wait.\\n" in f"{text}\\n":
            print("waits", flush=True)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                print("was stopped", flush=True)
                raise
        while "Wait for a file." in text and not Path("go").exists():
            await asyncio.sleep(0.01)
        for event in say("Dear Ann,"):
            yield event
        yield Usage(model="gpt-4o", input_tokens=1000, output_tokens=30)


class Clerk(Agent):
    description = "Asks."

    async def run(self, run):
        if not run.resume:
            yield Interrupt(interrupt_id="i", message="How many?")
            return
        for event in say(f"{run.resume[0].status} {run.resume[0].payload!r}"):
            yield event


runtime = CopilotRuntime(
    Model(),
    agents={"writer": Writer(), "clerk": Clerk()},
    settings=Settings(
        run_timeout=float(os.environ.get("MAIN_RUN_TIMEOUT", "600")),
        planner={"name": "planner", "store": "memory", "summary": "join", "floor": 1,
                 "fallback": "writer"},
        threads="memory",
    ),
)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Program, str]]:
    folder = tmp_path_factory.mktemp("planner")
    (folder / "main.py").write_text(MAIN)
    command = [*COMMAND, "serve", "main:runtime", "--port", "0"]
    with running(command, cwd=folder, env=CLEAN) as program:
        yield program, url_in(program.until(r"(?s)\A.*^Ctrl-C.*$")[0])


@contextmanager
def serve_plans(plans: Sequence[Any]) -> Generator[str]:
    """Serve pictures of a plan, as a planner sends them, to everybody."""
    events = [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        *(
            {
                "type": "ACTIVITY_SNAPSHOT",
                "messageId": "m",
                "activityType": "plan",
                "content": plan,
            }
            for plan in plans
        ),
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
    ]
    body = b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)
    with answering("text/event-stream", body) as url:
        yield url


@pytest.mark.anyio
async def test_a_plan_is_read_again_when_it_has_changed_and_not_for_each_word() -> None:
    requests: list[str] = []
    blocks = [*[b'data: {"delta":"word"}\n\n'] * 5, b"i", b"d: 2\ndata: {}\n\n", b"data: {}\n\n"]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        requests.append(path)
        bodies = blocks if "/events" in path else [b'{"number": 1}']
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
        for body in bodies:
            writer.write(body)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = PlanClient(f"http://127.0.0.1:{port}/graphql")
        pictures = [plan async for plan in client.follow("p")]
        await client.aclose()
    assert len(pictures) == 3  # at first, for the one event, and at the end
    assert requests.count("/graphql/plans/p") == 3


@contextmanager
def answering_plans(plans: Any) -> Generator[str]:
    """Serve a list of plans, none of which can be read."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_list = "/plans?" in self.path
            self.send_response(200 if is_list else 404)
            self.end_headers()
            self.wfile.write(json.dumps(plans if is_list else {"error": "No plan."}).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/graphql"
        server.shutdown()
        thread.join()


@pytest.fixture
def url(server: tuple[Program, str]) -> str:
    return server[1]


def test_each_change_is_a_line_and_the_outcome_comes_last(url: str) -> None:
    done = run("plans", "start", "check", "--url", url)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert lines[0].endswith(": check")
    ends = r"finished \(writer, [0-9.]+[µm]?s, {} tokens(, \$[0-9.]+)?\)"
    assert any(re.fullmatch(f"  1 text: {ends.format('2,080')}: checked", it) for it in lines)
    assert any(re.fullmatch(f"  1.1 sign: {ends.format('1,030')}: correction", it) for it in lines)
    assert lines[-4].startswith("plan finished  2/2 tasks  ")
    assert "2,180 tokens" in lines[-4]
    assert lines[-3:] == ["Dear Ann,", "", "Dear Ann,"]


def test_a_plan_that_fails_is_the_exit_code_and_says_why(url: str) -> None:
    done = run("plans", "start", "fail", "--url", url)
    assert done.returncode == 1
    assert "  2 next: skipped: It needs 'text', which did not finish." in done.stdout
    assert done.stdout.endswith("could not be carried out to its end. The signature.\n")


def test_what_is_missing_and_what_is_not_for_a_terminal() -> None:
    task = {"id": "1", "name": "te\x1b[2Jxt", "status": "running", "assistant": "ann"}
    evaluation = {"passed": False, "missing": "The signature."}
    plans = [
        {"id": "p", "request": "Do it", "status": "running", "tasks": [task]},
        {"id": "p", "request": "Do it", "status": "running", "tasks": [task]},
        {"id": "p", "status": "running", "tasks": [{**task, "evaluation": evaluation}]},
        {"id": "p", "status": "running", "tasks": [{**task, "evaluation": evaluation}, {}, 5]},
    ]
    with serve_plans(plans) as url:
        done = run("plans", "start", "x", "--url", url)
    assert done.returncode == 1  # it was not finished
    assert done.stdout.splitlines() == [
        "plan p: Do it",
        "  1 te [2Jxt: running (ann)",
        "  1 te [2Jxt: running (ann): missing: The signature.",
        "   : ",
    ]


def test_changes_are_lines_of_json(url: str) -> None:
    done = run("plans", "start", "letter", "--url", url, "--json", "--yes")
    lines: list[Any] = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    tasks = [line for line in lines if line["type"] == "task"]
    assert (tasks[-1]["name"], tasks[-1]["status"]) == ("send", "finished")
    assert [line["kind"] for line in lines if line["type"] == "question"] == ["approval"]
    assert [line["status"] for line in lines if line["type"] == "plan"][-2:] == [
        "running",
        "finished",
    ]
    assert lines[-1]["text"].startswith("Dear Ann,")
    assert len({line["plan_id"] for line in lines}) == 1


def test_a_request_may_be_piped_and_needs_no_plan(url: str) -> None:
    done = finished([*COMMAND, "plans", "start", "--url", url], env=CLEAN, given="Say hello\n")
    assert (done.returncode, done.stdout) == (0, "Hello!\n")
    done = finished(
        [*COMMAND, "plans", "start", "--url", url, "--json"], env=CLEAN, given="Say hello\n"
    )
    assert json.loads(done.stdout) == {"type": "text", "plan_id": None, "text": "Hello!"}


def test_a_question_without_a_terminal_stays_open(url: str) -> None:
    done = run("plans", "start", "letter", "--url", url, "-H", "Authorization: Bearer secret")
    id = read_id(done.stdout)
    assert done.returncode == 3
    assert "? May the task 'send' begin? Send it.\n" in done.stderr
    assert "  text: Dear Ann," in done.stderr
    shown = json.loads(run("plans", "show", id, "--json", "--url", url).stdout)
    question = f"--question {shown['questions'][0]['id']}"
    command = (
        f"  copilot-runtime plans answer {id} {{}} {question} --url {url} -H 'Authorization: …'\n"
    )
    assert done.stderr.endswith(
        f"The plan {id} waits for an answer. Give it with one of:\n"
        f"{command.format('approve')}{command.format('reject')}"
    )


def test_a_plan_is_found_by_the_beginning_of_its_id(url: str) -> None:
    id = make_plan(url)
    for beginning in (id[:12], id.removeprefix("ck-")[:8]):
        shown = run("plans", "show", beginning, "--json", "--url", url)
        assert json.loads(shown.stdout)["id"] == id
    answered = run("plans", "answer", id[3:11], "yes", "--url", url)
    assert (answered.returncode, answered.stderr) == (0, "Answered the plan: approve.\n")
    done = run("plans", "watch", id[:11], "--url", url)
    assert (done.returncode, done.stdout.startswith(f"plan {id}: letter")) == (0, True)
    stopped = run("plans", "stop", id[:11], "--url", url)
    assert (stopped.returncode, stopped.stderr) == (0, "The plan was over already.\n")
    stopped = run("plans", "stop", id[:11], "--task", "2", "--url", url)
    assert (stopped.returncode, stopped.stderr) == (0, "The task 2 was over already.\n")
    for nothing in ("", "ck-", "ck-" + id[3:5], "zzzz"):
        done = run("plans", "stop", nothing, "--url", url)
        assert (done.returncode, done.stdout, "There is no plan" in done.stderr) == (1, "", True)


def test_a_beginning_that_two_plans_have_is_refused() -> None:
    plans = {"plans": [{"id": "ck-abcdef"}, {"id": "ck-abcdff"}], "next": None}
    with answering_plans(plans) as url:
        done = run("plans", "stop", "abcd", "--url", url)
    assert (done.returncode, done.stdout) == (1, "")
    assert "'abcd' is the beginning of 2 plans, such as ck-abcdef and ck-abcdff." in done.stderr


def test_a_server_that_goes_away_leaves_the_command_that_watches_the_plan_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "main.py").write_text(MAIN)
    command = [*COMMAND, "serve", "main:runtime", "--port", "0"]
    with running(command, cwd=tmp_path, env=CLEAN) as server:
        url = url_in(server.until(r"(?s)\A.*^Ctrl-C.*$")[0])
        with running([*COMMAND, "plans", "start", "long", "--url", url], env=CLEAN) as program:
            started = program.until(r"(?s)plan (ck-\S+): long.*running")
            watched = [*COMMAND, "plans", "watch", started[1], "--url", url]
            with running(watched, env=CLEAN) as watcher:
                watcher.until("running")
                server.process.kill()
                for one in (program, watcher):
                    assert one.wait() == 1
                    text = one.errors.text()
                    assert "The plan goes on when a server with the same planner.store" in text
                    assert f"copilot-runtime plans watch {started[1]} --url {url}" in text


def test_what_cannot_be_planned_is_said(url: str) -> None:
    for arguments, sentence in (
        (["  "], "There is nothing to plan: the request is empty."),
        (["bad"], "tasks[0] has no purpose."),
        (["letter", "--agent", "nobody"], "Agent 'nobody' does not exist"),
        (["letter", "-H", "nonsense"], "is not a header"),
    ):
        done = run("plans", "start", *arguments, "--url", url)
        assert (done.returncode, done.stdout) == (1, "")
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr


def test_a_plan_is_a_tree_in_a_terminal_and_asks_there(url: str) -> None:
    with in_terminal([*COMMAND, "plans", "start", "letter", "--url", url], env=CLEAN) as (
        program,
        terminal,
    ):
        program.until(r"├─ \S+✓\S+ text +writer .* 1,030 tokens")
        program.until(r"└─ \S+\?\S+ send")
        program.until(r"May the task 'send' begin\? Send it\. \[yes/no\] ")
        os.write(terminal, b"perhaps\n")
        program.until(r"\[yes/no\] ")
        os.write(terminal, b"y\n")
        program.until(r"✓\S+ letter  2/2 tasks")
        assert program.wait() == 0


def test_a_person_who_refuses_says_why(url: str) -> None:
    with in_terminal([*COMMAND, "plans", "start", "letter", "--url", url], env=CLEAN) as (
        program,
        terminal,
    ):
        program.until(r"\[yes/no\] ")
        os.write(terminal, b"no\n")
        program.until(r"Why\? ")
        os.write(terminal, b"Too early.\n")
        program.until(r"■\S+ send +A person refused it: Too early\.")
        assert program.wait() == 1


def test_who_does_not_answer_leaves_the_plan_waiting(url: str) -> None:
    with in_terminal([*COMMAND, "plans", "start", "letter", "--url", url], env=CLEAN) as (
        program,
        terminal,
    ):
        program.until(r"\[yes/no\] ")
        os.write(terminal, b"\x04")
        program.until("waits for an answer")
        assert program.wait() == 3


def test_ctrl_c_at_a_question_stops_the_plan(url: str) -> None:
    with in_terminal([*COMMAND, "plans", "start", "letter", "--url", url], env=CLEAN) as (
        program,
        _,
    ):
        program.until(r"\[yes/no\] ")
        program.process.send_signal(signal.SIGINT)
        program.until(r"■\S+ send +A person stopped it\.")
        assert program.wait() == 1


def test_a_question_of_an_assistant_is_answered_in_a_text(url: str) -> None:
    with in_terminal([*COMMAND, "plans", "start", "ask", "--url", url], env=CLEAN) as (
        program,
        terminal,
    ):
        program.until(r"\? How many\? ")
        os.write(terminal, b"3\n")
        program.until("resolved 3")
        assert program.wait() == 0


@in_one_test(("text", "outcome"), [(b"three\n", "resolved 'three'"), (b"\n", "cancelled None")])
def test_a_question_of_an_assistant_is_answered_later(url: str, text: bytes, outcome: str) -> None:
    id = read_id(run("plans", "start", "ask", "--url", url).stdout)
    command = [*COMMAND, "plans", "watch", id, "--url", url]
    with in_terminal(command, env=CLEAN) as (program, terminal):
        program.until(r"\? How many\? ")
        os.write(terminal, text)
        program.until(outcome)
        assert program.wait() == 0


def test_a_plan_that_takes_longer_than_a_run_may_is_watched_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(MAIN)
    command = [*COMMAND, "serve", "main:runtime", "--port", "0"]
    with running(command, cwd=tmp_path, env=CLEAN | {"MAIN_RUN_TIMEOUT": "1"}) as server:
        url = url_in(server.until(r"(?s)\A.*^Ctrl-C.*$")[0])
        with running([*COMMAND, "plans", "start", "long", "--url", url], env=CLEAN) as program:
            program.until("The plan goes on: 0 of 1 tasks are over.")
            (tmp_path / "go").touch()
            program.until("plan finished  1/1 tasks")
            program.until("Dear Ann,")
            assert program.wait() == 0


def read_id(printed: str) -> str:
    """Return the id of the plan of which lines were printed."""
    found = re.search(r"^plan (\S+): \w+$", printed, re.MULTILINE)
    assert found is not None
    return found[1]


def make_plan(url: str) -> str:
    """Have a plan made that waits for an approval, and return its id."""
    done = run("plans", "start", "letter", "--url", url)
    id = read_id(done.stdout)
    assert f"plans answer {id} approve" in done.stderr
    return id


def test_plans_are_listed_shown_and_answered(url: str) -> None:
    id = make_plan(url)
    rows = run("plans", "list", "--url", url, "--status", "waiting").stdout.splitlines()
    assert any(id in row and row.endswith("letter") for row in rows)
    (newest,) = json.loads(run("plans", "list", "--limit", "1", "--json", "--url", url).stdout)[
        "plans"
    ]
    assert newest["id"] == id
    listed = run("plans", "list", "--thread", "none", "--url", url)
    assert (listed.stdout, listed.stderr) == ("", "There are no such plans.\n")

    shown = run("plans", "show", id, "--url", url).stdout
    assert shown.startswith("? letter  1/2 tasks")
    assert "? May the task 'send' begin? Send it. [approve/reject]  question " in shown
    assert "  text: Dear Ann," in shown
    assert json.loads(run("plans", "show", id, "--json", "--url", url).stdout)["id"] == id

    arguments = ("plans", "answer", id, "reject", "--note", "Not now.", "--task", "2")
    assert run(*arguments, "--url", url).returncode == 0
    done = run("plans", "watch", id, "--url", url)
    assert (done.returncode, "A person refused it: Not now." in done.stdout) == (1, True)


def test_a_plan_is_stopped_and_done_again(url: str) -> None:
    id = make_plan(url)
    stopped = run("plans", "stop", id, "--url", url)
    assert "■ send" in stopped.stdout
    assert "A person stopped it." in stopped.stdout
    assert run("plans", "retry", id, "--url", url).returncode == 0
    command = [*COMMAND, "plans", "watch", id, "--url", url]
    with in_terminal(command, env=CLEAN) as (program, terminal):
        program.until(r"  text: Dear Ann,")
        program.until(r"\[approve/reject\] ")
        os.write(terminal, b"a\n")
        program.until("✓")
        program.until("Dear Ann,")
        assert program.wait() == 0
    done = run("plans", "watch", id, "--url", url, "--json")
    assert [json.loads(line)["type"] for line in done.stdout.splitlines()][-2:] == ["plan", "text"]
    task = run("plans", "stop", id, "--task", "1", "--json", "--url", url)
    assert json.loads(task.stdout)["status"] == "finished"


def test_who_leaves_a_watch_leaves_the_plan_as_it_is(server: tuple[Program, str]) -> None:
    _, url = server
    id = make_plan(url)
    command = [*COMMAND, "plans", "watch", id, "--url", url]
    with in_terminal(command, env=CLEAN) as (program, terminal):
        program.until(r"\[approve/reject\] ")
        os.write(terminal, b"\x04")
        assert program.wait() == 3
    with running([*command, "--json"], env=CLEAN) as program:
        program.until('"waiting"')
        program.process.send_signal(signal.SIGINT)
        assert "The plan goes on." in program.errors.text()
        assert program.wait() == 1
    assert json.loads(run("plans", "show", id, "--json", "--url", url).stdout)["ended_at"] is None


def test_what_cannot_be_done_with_a_plan_is_said(url: str) -> None:
    for arguments, sentence in (
        (["show", "none"], "There is no plan 'none'."),
        (["list", "--status", "lost"], "status is 'lost'"),
        (["watch", "none"], "There is no plan 'none'."),
        (["retry", make_plan(url)], "The plan is not over yet."),
        (
            ["answer", make_plan(url), "perhaps"],
            "'perhaps' is no answer. Answer with one of: approve, reject.",
        ),
        (["list", "-H", "nonsense"], "is not a header"),
    ):
        done = run("plans", *arguments, "--url", url)
        assert (done.returncode, done.stdout) == (1, "")
        assert sentence in done.stderr
    with answering("application/json", b"[") as other:
        done = run("plans", "stop", "x", "--url", other)
    assert "has no plans: it answered 200." in done.stderr
    assert "The server needs" not in done.stdout


def test_ctrl_c_stops_the_plan(server: tuple[Program, str]) -> None:
    planner, url = server
    with in_terminal([*COMMAND, "plans", "start", "wait", "--url", url], env=CLEAN) as (program, _):
        planner.until("waits")
        program.until("wait  0/1 tasks")
        program.process.send_signal(signal.SIGINT)
        program.until(r"■\S+ text +writer .* A person stopped it\.")
        program.until(r"\(stopped\)")
        assert program.wait() == 1
    planner.until("was stopped")


def test_a_tree_that_is_higher_than_the_terminal_is_drawn_whole_at_its_end(url: str) -> None:
    environ = CLEAN | {"LINES": "10", "COLUMNS": "60"}
    with in_terminal([*COMMAND, "plans", "start", "deep", "--url", url], env=environ) as (
        program,
        _,
    ):
        program.until(r"… and \d+ more tasks")
        program.until(r"deep  21/21 tasks")
        assert program.wait() == 0
    text = program.output.text()
    last = text[text.rindex("\x1b[J") :].replace("\r", "").split("\n")
    assert [line for line in last if "more tasks" in line] == []
    assert sum("part " in line for line in last) == 20
    assert "parts \x1b" not in text


def test_a_terminal_without_unicode_gets_ascii(url: str) -> None:
    environ = CLEAN | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [*COMMAND, "plans", "start", "letter", "--yes", "--url", url]
    with in_terminal(command, env=environ) as (program, _):
        program.until(r"\|- \S+v\S+ text")
        assert program.wait() == 0


def test_the_help_teaches() -> None:
    text = " ".join(run("plans", "start", "--help").stdout.split())
    assert "Ctrl-C stops the plan" in text
    assert "The exit status is 0 if the plan finished" in text


def test_the_command_needs_a_server_that_listens(tmp_path: Path) -> None:
    done = finished(
        [sys.executable, "-m", "copilot_runtime", "plans", "start", "x", "--url", "127.0.0.1:9"]
    )
    assert (done.returncode, "The connection was refused" in done.stderr) == (1, True)
