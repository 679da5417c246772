"""`copilot-runtime traces`, on a store and on a running server."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import islice
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest
from typer.testing import CliRunner, Result

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, Misuse, NetworkError
from copilot_runtime.cli.main import cli
from copilot_runtime.extensions.tracing.cli.sources import ServerSource, StoreSource
from copilot_runtime.extensions.tracing.store import Record
from tests.commands import read_messages
from tests.extensions.tracing.http.spans import agent, chat, tool, trip
from tests.in_one_test import in_one_test
from tests.processes import in_terminal, running

ROOT = Path(__file__).parents[3]
A, B = "a" * 32, "b" * 32
Run = Callable[..., Result]
COMMAND = [sys.executable, "-m", "copilot_runtime"]
CLEAN = {name: it for name, it in os.environ.items() if not name.startswith("COPILOT")} | {
    "PYTHONPATH": str(ROOT),
    "COLUMNS": "90",
}


def second_trip() -> list[Record]:
    """Return the same run another time: it booked, took more tokens, and asked another agent."""
    answer = {"gen_ai.output.messages": [{"role": "assistant", "parts": []}]}
    return [
        agent("planner", id="1", trace=B, start=60, seconds=5, CONVERSATION_ID="thread-2"),
        chat("gpt-4o", 1200, 40, id="2", parent="1", trace=B, start=60),
        tool("find_flights", id="3", parent="1", trace=B, start=61),
        tool("book", id="4", parent="1", trace=B, start=62),
        agent("writer", id="6", parent="1", trace=B, start=63),
        chat("gpt-4o", 1400, 60, id="5", parent="1", trace=B, start=64, content=answer),
    ]


@pytest.fixture
def store(tmp_path: Path) -> str:
    address = f"sqlite:{tmp_path / 'traces.db'}"
    question = [{"role": "user", "parts": [{"type": "text", "content": "Trip " + "on " * 30}]}]
    content = {"gen_ai.input.messages": question}
    spans = [*trip(A, USER_NAME="ann", content=content), *second_trip()]
    StoreSource(address, is_new=True).add_spans(spans)
    return address


@pytest.fixture
def run(store: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Return a function that runs a command with the store as that of the settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COPILOT_TELEMETRY_STORE", store)
    monkeypatch.setenv("COLUMNS", "90")

    def call(*arguments: str, input: str | None = None) -> Result:
        return CliRunner().invoke(cli, ["traces", *arguments], input=input)

    return call


def problem(result: Result) -> CopilotError:
    assert isinstance(result.exception, CopilotError)
    return result.exception


@in_one_test(
    "command",
    [*("list", "show", "query", "stats", "tail"), *("diff", "export", "import", "delete")],
)
def test_each_command_explains_itself_with_examples(run: Run, command: str) -> None:
    text = run(command, "--help").stdout
    assert f"copilot-runtime traces {command}" in text


def test_traces_are_a_table_with_the_newest_first(run: Run) -> None:
    lines = run("list").stdout.splitlines()
    assert lines[0].split()[:5] == ["STARTED", "TRACE", "AGENT", "TIME", "SPANS"]
    assert [line.split()[1] for line in lines[1:]] == [B, A]
    assert "2,500→100  $0.0050" in lines[2]
    assert "finished (ValueError)  thread-1" in lines[2]
    assert lines[2].endswith("on on on …")  # the question, shortened


@in_one_test(
    ("options", "traces"),
    [
        (["--thread", "thread-2"], [B]),
        (["--agent", "writer"], [B]),
        (["--user", "ann"], [A]),
        (["--user", "ann", "--agent", "writer"], []),
        (["--run", "run-1"], [A]),
        (["--errors"], [A]),
        (["--slower", "4.5"], [B]),
        (["--text", "flights", "--limit", "1"], [B]),
        (["--text", "TRIP on"], [A]),
        (["--until", "2026-01-01T12:00:30"], [A]),
        (["--since", "1h"], []),
    ],
)
def test_traces_are_found_by_options(run: Run, options: list[str], traces: list[str]) -> None:
    found = json.loads(run("list", "--json", *options).stdout)["traces"]
    assert [it["trace_id"] for it in found] == traces


def test_a_complaint_is_shown_and_found_by_its_rating(run: Run, store: str) -> None:
    rated = agent("planner", id="1", trace=B, start=60, seconds=5, FEEDBACK_RATING="down")
    StoreSource(store).add_spans([rated])
    assert run("list").stdout.splitlines()[1].endswith("  down")
    assert run("list", "--rating", "down").stdout.count(B) == 1
    assert A not in run("list", "--rating", "down").stdout
    assert "thumbs down" in run("show", B).stdout
    assert run("stats", "--rating", "down").stdout.startswith("1 trace, 0 with errors, 6 spans\n")
    assert run("stats", "--errors").stdout.startswith("1 trace, 1 with errors, 5 spans\n")
    assert problem(run("list", "--rating", "bad")).message == "rating is 'bad'; it is up or down."


def test_what_is_not_there_is_said_where_no_pipe_reads_it(run: Run) -> None:
    for command in (["list"], ["stats"], ["query", "@"]):
        result = run(*command, "--thread", "none")
        assert (result.stdout, result.exit_code) == ("", 0)
        assert "race" in result.stderr


def test_a_trace_is_drawn_by_the_beginning_of_its_id(run: Run) -> None:
    text = run("show", "aaaa").stdout
    assert f"trace {A}" in text
    assert "▕" in text or "|" in text
    assert "execute_tool book: ValueError: Full." in text
    assert run("show", A, "--all").stdout == text


def test_a_trace_is_a_diagram_or_json(run: Run) -> None:
    assert run("show", A, "--mermaid").stdout.startswith("sequenceDiagram\n")
    assert len(json.loads(run("show", A, "--json").stdout)["spans"]) == 5


def test_an_id_that_is_not_known_is_named(run: Run) -> None:
    assert problem(run("show", "ffff")).message.startswith("There is no trace 'ffff' in sqlite:")
    assert problem(run("delete", "ffff")).message.startswith("There is no trace 'ffff'")
    assert problem(run("show", "")).message.startswith("There is no trace ''")


def test_an_id_that_means_several_is_refused(run: Run, store: str) -> None:
    StoreSource(store).add_spans(trip("a" * 31 + "b"))
    error = problem(run("show", "aaaa"))
    assert error.message.startswith("2 traces begin with 'aaaa': ")
    assert error.hint == "Give a longer prefix."


def test_a_jmespath_finds_traces(run: Run) -> None:
    text = run("query", "[?status.code == `2`]").stdout
    assert [line.split()[1] for line in text.splitlines()[1:]] == [A]
    found = json.loads(run("query", "[?status.code == `2`]", "--json").stdout)
    assert len(found["traces"][0]["spans"]) == 5
    assert isinstance(problem(run("query", "[?")), Misuse)


def test_statistics_are_tables_by_agent_model_and_tool(run: Run) -> None:
    text = run("stats").stdout
    assert text.startswith("2 traces, 1 with errors, 11 spans\n")
    lines = [line.split() for line in text.splitlines()]
    assert ["gpt-4o", "4", "0", "1.00s", "1.00s", "5,100→200", "$0.0050+"] in lines
    assert ["book", "2", "1", "1.00s", "1.00s"] in lines
    assert ["AGENT", "CALLS", "ERRORS", "P50", "P95", "TOKENS", "COST"] in lines
    assert json.loads(run("stats", "--json").stdout)["traces"] == 2
    assert json.loads(run("stats", "--json", "--errors", "--slower", "1s").stdout)["traces"] == 1


def test_a_run_that_waits_for_a_person_has_asked_a_question(run: Run, store: str) -> None:
    asked = agent("planner", id="1", trace=B, start=60, seconds=5, RUN_OUTCOME="interrupted")
    StoreSource(store).add_spans([asked])
    assert "asked a question" in run("list").stdout
    assert '"outcome": "interrupted"' in run("list", "--json").stdout


def test_costs_for_which_there_are_no_prices_name_the_extra_with_them_once(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    said = [run(*command).stderr for command in (["list"], ["stats"], ["show", B])]
    assert [text.count("[prices]'") for text in said] == [1, 1, 1], said


def test_two_runs_are_compared_step_by_step(run: Run) -> None:
    text = run("diff", "aaaa", "bbbb").stdout
    lines = [line.split() for line in text.splitlines()]
    assert lines[1] == ["invoke_agent", "planner", "4.00s", "5.00s"]
    assert lines[2] == ["chat", "gpt-4o", "1.00s", "1.00s", "1,200→40", "1,200→40"]
    assert lines[4][:3] == ["~", "execute_tool", "book"]
    assert lines[4][5:] == ["ValueError", "→", "no", "error"]
    assert lines[5] == ["+", "invoke_agent", "writer", "1.00s"]
    assert lines[6][:3] == ["~", "chat", "gpt-4o"]
    assert lines[6][5:] == ["1,300→60", "1,400→60", "answer"]


def test_a_comparison_is_json_for_programs(run: Run) -> None:
    steps = json.loads(run("diff", B, A, "--json").stdout)["steps"]
    assert [step["state"] for step in steps] == [
        *("same", "same", "same", "changed", "removed", "changed")
    ]
    assert steps[4]["name"] == "invoke_agent writer"
    assert steps[5]["changes"] == ["input_tokens", "answer"]


def test_what_was_exported_can_be_imported(run: Run, tmp_path: Path) -> None:
    file, other = tmp_path / "traces.jsonl", f"sqlite:{tmp_path / 'new' / 'other.db'}"
    assert read_messages(run("export", str(file))) == "Exported 2 traces.\n"
    assert len(file.read_text().splitlines()) == 11
    result = run("import", str(file), "--store", other)
    assert result.stderr == "Read 11 spans of 2 traces.\n"
    assert run("list", "--store", other).stdout == run("list").stdout
    run("export", str(file), "--errors")
    assert len(file.read_text().splitlines()) == 5


def as_vs_code(record: Record) -> dict[str, Any]:
    """Return a span as the file exporter of VS Code writes it: kinds begin at 0."""
    parent = {"spanId": record["parent_span_id"]} if record["parent_span_id"] else None
    return {
        "traceId": record["trace_id"],
        "spanId": record["span_id"],
        "parentSpanContext": parent,
        "name": record["name"],
        "kind": record["kind"] - 1,
        "startTime": [*divmod(record["start_time_unix_nano"], 10**9)],
        "endTime": [*divmod(record["end_time_unix_nano"], 10**9)],
        "attributes": record["attributes"],
        "status": record["status"],
    }


@in_one_test(
    "text",
    [
        json.dumps({"spans": trip("c" * 32)}, indent=1),
        json.dumps(trip("c" * 32)),
        "\n\n".join(json.dumps({"id": it["span_id"], "span": it}) for it in trip("c" * 32)),
        "\n".join(json.dumps(as_vs_code(it)) for it in trip("c" * 32)),
    ],
)
def test_spans_are_read_in_several_forms(run: Run, text: str) -> None:
    assert read_messages(run("import", input=text)) == "Read 5 spans of 1 trace.\n"
    assert "✗ execute_tool book" in run("show", "cccc").stdout.replace("x exec", "✗ exec")


def test_spans_are_read_as_otlp(run: Run) -> None:
    span = {
        "traceId": "c" * 32,
        "spanId": "1" * 16,
        "name": "chat gpt-4o",
        "startTimeUnixNano": "1767268800000000000",
        "endTimeUnixNano": "1767268801000000000",
    }
    export = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    assert read_messages(run("import", input=json.dumps(export))) == "Read 1 span of 1 trace.\n"
    assert "chat gpt-4o" in run("show", "cccc").stdout
    error = problem(run("import", input=json.dumps({"resourceSpans": 7})))
    assert error.message == "Line 1 is not valid OTLP: resourceSpans is no list."
    del span["traceId"]
    error = problem(run("import", input=json.dumps(export)))
    assert error.message.startswith("Line 1 has 1 invalid spans: The traceId of a span is not 32")


def test_a_store_may_be_a_folder_of_json_lines(run: Run, tmp_path: Path) -> None:
    store = f"jsonl:{tmp_path / 'days'}"
    run("import", "--store", store, input=json.dumps(trip("c" * 32)))
    assert "execute_tool book" in run("show", "cccc", "--store", store).stdout


@in_one_test(
    ("text", "said"),
    [
        ("{}\nno", "Line 2 is not valid JSON."),
        ('{"trace_id": ""}', "Line 1 is not a span: trace_id is required."),
        ("7", "Line 1 is not a span: A span must be an object of JSON."),
        ('{"spans": [7]}', "Line 1 is not a span: A span must be an object of JSON."),
    ],
)
def test_what_is_no_span_is_named_and_nothing_is_written(run: Run, text: str, said: str) -> None:
    whole = json.dumps(trip("c" * 32)[0])
    result = run("import", "-", input=f"{text}" if said.startswith("Line 1") else f"{whole}\nno")
    assert problem(result).message == said
    assert len(json.loads(run("list", "--json").stdout)["traces"]) == 2


def test_traces_that_were_deleted_are_gone(run: Run) -> None:
    assert read_messages(run("delete", A)) == "Deleted 1 trace.\n"
    assert [line.split()[1] for line in run("list").stdout.splitlines()[1:]] == [B]


def test_all_traces_of_a_person_are_deleted(run: Run) -> None:
    assert read_messages(run("delete", "--user", "bob")) == "Deleted 0 traces.\n"
    assert read_messages(run("delete", "--user", "ann")) == "Deleted 1 trace.\n"
    assert [line.split()[1] for line in run("list").stdout.splitlines()[1:]] == [B]
    assert problem(run("delete")).message == "Give trace ids, or a user with --user."


@in_one_test(
    ("options", "message", "hint"),
    [
        (["--store", "memory"], "in the memory of a server", "--url http://127.0.0.1:8000/graphql"),
        (["--store", "none"], "No traces are kept", "sqlite:PATH"),
        (["--store", "redis:x"], "'redis:x' is not a trace store.", "sqlite:PATH"),
        (["--store", "sqlite:"], "'sqlite:' is not a trace store.", "sqlite:PATH"),
        (["--store", "sqlite:gone.db"], "There is no file 'gone.db'.", "sqlite:traces.db"),
        (["--url", "ftp://x"], "'ftp://x' is not a runtime URL", ""),
        (["--url", "http://x", "--store", "sqlite:x"], "Give --url or --store, and not both.", ""),
        (["--url", "http://x", "-H", "nonsense"], "'nonsense' is not a header", ""),
        (["--url", "127.0.0.1:9"], "There is no server at http://127.0.0.1:9", "serve"),
        (["--since", "once"], "--since is 'once'; it is a time ago", ""),
        (["--slower", "very"], "--slower is 'very'; it is a number of seconds", ""),
    ],
)
def test_what_cannot_be_read_is_explained_with_the_way_out(
    run: Run, options: list[str], message: str, hint: str
) -> None:
    error = problem(run("list", *options))
    assert message in error.message
    assert hint in (error.hint or "")


def test_files_that_cannot_be_used_are_named(run: Run, tmp_path: Path) -> None:
    assert "cannot be written" in problem(run("export", str(tmp_path / "no" / "file"))).message
    assert "cannot be read" in problem(run("import", str(tmp_path / "no"))).message


def test_who_has_read_enough_of_an_export_hears_nothing_more(store: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [*COMMAND, "traces", "export", "--store", store]
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=CLEAN, check=False)
    os.close(writer)
    assert result.stderr == b""


def test_a_store_is_followed_as_it_grows(store: str) -> None:
    source = StoreSource(store)
    spans = source.tail({})
    late = [agent("late", id="1", trace="d" * 32, start=10**9)]
    StoreSource(store).add_spans(late)
    assert [it["name"] for it in islice(spans, 1)] == ["invoke_agent late"]
    spans.close()  # type: ignore[attr-defined]  # it is a generator


# -- a running server ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the demo, and ask it something."""
    environ = CLEAN | {"COPILOT_ADAPTER_NAME": "demo", "COPILOT_THREADS": "memory"}
    folder = tmp_path_factory.mktemp("served")
    with running([*COMMAND, "serve", "--port", "0"], cwd=folder, env=environ) as program:
        found = program.until(r"runtimeUrl  (\S+)")[1]
        say(found)
        yield found


def say(url: str) -> None:
    body: dict[str, Any] = {
        "threadId": "t1",
        "runId": str(uuid4()),
        "messages": [{"id": "m", "role": "user", "content": "Hello!"}],
        "tools": [],
        "context": [],
    }
    headers = {"content-type": "application/json"}
    request = Request(f"{url}/agent/default/run", json.dumps(body).encode(), headers)
    with urlopen(request) as answer:
        answer.read()


def test_a_server_is_asked_by_its_url(run: Run, url: str) -> None:
    found = json.loads(run("list", "--url", url, "--thread", "t1", "--json").stdout)["traces"]
    trace_id = found[0]["trace_id"]
    assert "invoke_agent default" in run("show", trace_id[:8], "--url", url).stdout
    assert trace_id in run("query", "length(@) > `1`", "--url", url).stdout
    assert "demo" in run("stats", "--url", url).stdout
    assert trace_id in run("list", "--url", url.removeprefix("http://"), "--limit", "1").stdout
    assert trace_id in run("list", "--url", url.removesuffix("/graphql"), "--limit", "1").stdout


def test_what_a_server_refuses_is_explained(run: Run, url: str) -> None:
    gone = problem(run("show", "f" * 32, "--url", url))
    assert gone.message == "There is no such trace."
    refused = problem(run("list", "--url", url, "-H", "x-forwarded-for: 203.0.113.7"))
    assert isinstance(refused, NetworkError)
    assert refused.message == "403 Traces are for operators of this server."
    assert "telemetry.operators" in str(refused.hint)
    elsewhere = problem(run("list", "--url", f"{url}/nowhere"))
    assert "404" in elsewhere.message


class Other(BaseHTTPRequestHandler):
    """Another server: it answers with a page, and sends elsewhere who asks for statistics."""

    def do_GET(self) -> None:
        is_stats = self.path.startswith("/traces/stats")
        self.send_response(302 if is_stats else 200)
        self.send_header("location", "/traces")
        self.send_header("content-length", "6")
        self.end_headers()
        self.wfile.write(b"<html>")

    def log_message(self, *_: Any) -> None:  # type: ignore[override]
        """Say nothing."""


def test_another_server_is_told_apart_and_sends_nobody_elsewhere(run: Run) -> None:
    with HTTPServer(("127.0.0.1", 0), Other) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        root = f"{url}/"  # a runtime at the root, where its URL has a path
        page, moved = problem(run("list", "--url", root)), problem(run("stats", "--url", root))
        server.shutdown()
    assert page.message == f"The response of {url} does not contain traces."
    assert moved.message == "302 It is at /traces."


def test_a_server_tells_spans_as_they_end(url: str) -> None:
    command = [*COMMAND, "traces", "tail", "--url", url, "--thread", "t1"]
    is_read = Event()

    def chat_on() -> None:
        while not is_read.is_set():  # what was before the first look is not told
            say(url)

    with ThreadPoolExecutor() as pool, running(command, cwd=ROOT, env=CLEAN) as program:
        pool.submit(chat_on)
        try:
            assert program.until(r"invoke_agent default")
            names = [it["name"] for it in islice(ServerSource(url).tail({}), 2)]
            with running([*command, "--json"], cwd=ROOT, env=CLEAN) as other:
                assert other.until(r'"name": "invoke_agent default"')
        finally:
            is_read.set()
    assert "invoke_agent default" in names


def test_a_trace_of_a_server_is_deleted(run: Run, url: str) -> None:
    say(url)
    trace_id = json.loads(run("list", "--url", url, "--json").stdout)["traces"][0]["trace_id"]
    assert run("delete", trace_id, "--url", url).stderr == "Deleted 1 trace.\n"
    assert trace_id not in run("list", "--url", url).stdout


def test_errors_are_red_in_a_terminal(store: str) -> None:
    command = [*COMMAND, "traces", "show", A, "--store", store]
    with in_terminal(command, cwd=ROOT, env=CLEAN | {"PYTHONUTF8": "1"}) as (program, _):
        assert "\x1b[31m" in program.output.text()


def test_a_source_is_a_store_or_a_server() -> None:
    with pytest.raises(ConfigurationFailed):
        StoreSource("jsonl:")
