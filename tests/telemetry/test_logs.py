"""Lines of the log have time, level, logger and run under any server, as text or as JSON."""

import asyncio
import io
import json
import logging
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from httpx import ASGITransport, AsyncClient

from copilot_runtime import CopilotRuntime, Settings, action
from copilot_runtime.api import ActionContext, Agent, RunInput
from copilot_runtime.api.events import Events, TextMessageContent, TextMessageStart
from copilot_runtime.base.errors import StoreFailed
from copilot_runtime.extensions.settings import load_settings
from copilot_runtime.telemetry import NO_TELEMETRY, LocalTelemetry, Telemetry
from copilot_runtime.telemetry.logs import (
    DomainLogger,
    RunFilter,
    add_fallback_handler,
    build_formatter,
    configure_logs,
    is_debug_enabled,
)
from copilot_runtime.telemetry.span import Span
from copilot_runtime.testing import Client, ReplyFailed, ScriptedAdapter, call, say
from tests.in_one_test import in_one_test
from tests.threads.recorded import Store

UNCONFIGURED = """
import asyncio, logging
from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.testing import Client, ScriptedAdapter

async def main():
    settings = Settings(threads="memory", log_format=FORMAT, log_debug=DEBUG)
    async with Client(CopilotRuntime(ScriptedAdapter(), settings=settings)) as client:
        logging.getLogger("copilot_runtime.example").info("Half an \\ud83c emoji")
        logging.getLogger("someone.else").info("not ours")
        logging.getLogger("copilot_runtime.example.part").debug("deep")
        logging.getLogger("copilot_runtime.exam").debug("other")
        CONFIGURE
        logging.getLogger("copilot_runtime.example").warning("second")

asyncio.run(main())
"""


def log_of(log_format: str, configure: str = "", debug: str = "") -> list[str]:
    """Return the log of a program whose server configures none, such as uvicorn's for us."""
    code = UNCONFIGURED.replace("FORMAT", repr(log_format)).replace("CONFIGURE", configure)
    code = code.replace("DEBUG", repr(debug))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stderr.splitlines()


@pytest.fixture
def logger() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(build_formatter("json"))
    logger = logging.getLogger("tests.logs")
    logger.addHandler(handler)
    yield logger, text
    logger.removeHandler(handler)


def test_a_server_that_configures_no_log_gets_time_level_and_logger() -> None:
    first, second = log_of("text")

    assert first.endswith(" INFO copilot_runtime.example: Half an \\ud83c emoji")
    assert first[:2] == "20"
    assert second.endswith(" WARNING copilot_runtime.example: second")


def test_a_line_of_json_is_one_object() -> None:
    first, _ = map(json.loads, log_of("json"))

    assert first["level"] == "info"
    assert first["logger"] == "copilot_runtime.example"
    assert first["message"] == "Half an ? emoji"
    assert first["time"].endswith("+00:00")


def test_a_log_that_the_application_configures_is_the_only_one() -> None:
    lines = log_of("text", 'logging.basicConfig(format="mine %(message)s")')

    assert lines[1:] == ["mine second"]


def test_json_has_the_traceback_and_what_was_added(
    logger: tuple[logging.Logger, io.StringIO],
) -> None:
    log, text = logger
    try:
        raise LookupError("a\nbug")
    except LookupError:
        log.exception("It %s", "broke", extra={"chat": "t1", "odd": {1: object}})
    [line] = text.getvalue().splitlines()
    fields = json.loads(line)

    assert fields["message"] == "It broke"
    assert fields["exception"].startswith("Traceback")
    assert fields["odd"] == {"1": "<class 'object'>"}


@pytest.mark.parametrize("odd", ["half \ud83c", 2**70, {(1, 2): 3}])
def test_no_line_of_json_is_lost_for_what_was_added(
    odd: Any, logger: tuple[logging.Logger, io.StringIO]
) -> None:
    log, text = logger
    log.warning("Well", extra={"odd": odd})
    fields = json.loads(text.getvalue())

    assert (fields["message"], fields["odd"]) == ("Well", repr(odd))


@in_one_test("form", ["json", "text"])
def test_no_text_ends_a_line_of_the_log_for_any_reader(form: str) -> None:
    odd = "".join(map(chr, range(1, 0x3000)))
    record = logging.LogRecord("x", 40, "", 1, f"a {odd}", (), None)
    record.odd = odd
    line = build_formatter(form).format(record)

    assert len(line.splitlines()) == 1
    assert r"\u2028" in line
    assert form == "text" or json.loads(line)["odd"] == odd


def test_a_log_that_is_configured_is_left_alone() -> None:
    package = logging.getLogger("copilot_runtime")
    before = [*package.handlers]
    add_fallback_handler("info", "text")  # pytest has handlers

    assert package.handlers == before


def test_debug_lines_of_a_namespace_are_written_where_nobody_configures_a_log() -> None:
    lines = log_of("text", debug="example:*, elsewhere")

    assert [line.split()[-1] for line in lines] == ["emoji", "deep", "second"]


def test_a_log_of_the_application_gets_no_debug_lines_but_those_that_were_asked_for() -> None:
    lines = log_of(
        "text",
        'logging.basicConfig(format="mine %(message)s"); '
        'logging.getLogger("copilot_runtime.exam").debug("other")',
        debug="example:*",
    )

    assert lines[2:] == ["mine second"]


@in_one_test(
    ("debug", "domain", "expected"),
    [
        ("", "agent", False),
        ("*", "agent", True),
        ("agent", "agent", True),
        ("agent", "agent:memory", False),
        ("agent:*", "agent:memory", True),
        ("agent*", "agent", True),
        ("agent:*", "agent", False),
        ("llm, agent", "agent", True),
        ("llm,tool", "agent", False),
        ("llm,*", "agent", True),
        (",", "agent", False),
        ("a*t", "agent", False),
        ("AGENT", "agent", False),
    ],
)
def test_namespaces_are_those_of_debug_in_other_programs(
    debug: str, domain: str, expected: bool
) -> None:
    assert is_debug_enabled(domain, debug) is expected
    assert is_debug_enabled(domain, debug.split(",")) is expected


def test_the_variable_debug_sets_namespaces_unless_the_settings_do() -> None:
    variables = {"DEBUG": "threads:*,bus"}

    assert load_settings(environ=variables).log_debug == ("threads:*", "bus")
    variables["COPILOT_LOG_DEBUG"] = "agents"
    assert load_settings(environ=variables).log_debug == ("agents",)
    assert load_settings(environ={"DEBUG": ""}).log_debug == ()


@contextmanager
def log_of_process() -> Generator[io.StringIO]:
    """Lend a test the log of the process, as `copilot-runtime serve` has it."""
    root, text = logging.root, io.StringIO()
    names = ("", "copilot_runtime", "copilot_runtime.threads", "uvicorn", "mcp", "somebody")
    before, levels = [*root.handlers], {it: logging.getLogger(it).level for it in names}
    root.handlers = []
    try:
        yield text
    finally:
        root.handlers = before
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def lines_of(text: io.StringIO, *namespaces: str) -> list[str]:
    """Configure the log, write a debug line to each of four loggers, return who was written."""
    text.truncate(0)
    text.seek(0)
    configure_logs("info", "text", namespaces)
    (handler,) = logging.root.handlers
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(text)
    names = ("copilot_runtime.threads.recorder", "copilot_runtime.threads", "somebody", "else")
    for name in names:
        logging.getLogger(name).debug("x")
    return [line.split()[3].rstrip(":") for line in text.getvalue().splitlines()]


def test_namespaces_of_a_server_may_be_those_of_any_package() -> None:
    recorder, threads = "copilot_runtime.threads.recorder", "copilot_runtime.threads"
    with log_of_process() as text:
        assert lines_of(text) == []
        assert lines_of(text, "threads:*") == [recorder]
        assert lines_of(text, "threads") == [threads]
        assert lines_of(text, "copilot_runtime.thr*", "some*") == [recorder, threads, "somebody"]
        assert len(lines_of(text, "*")) == 4
        assert lines_of(text, "somebody", "") == ["somebody"]
        assert lines_of(text) == []


@contextmanager
def log_as(log_format: str) -> Generator[io.StringIO]:
    """Write the lines of this package in a format."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(build_formatter(log_format))
    log = logging.getLogger("copilot_runtime")
    log.addHandler(handler)
    try:
        yield text
    finally:
        log.removeHandler(handler)


async def log_of_run(log_format: str, *turns: Any, telemetry: Telemetry | None = None) -> list[str]:
    """Return what is logged in the run "r" of the thread "t", whose tool logs a line."""

    @action
    def look(word: str, context: ActionContext) -> str:
        logging.getLogger("copilot_runtime.example").warning(
            "Looking", extra={"word": word, "span": context.span.span_id}
        )
        return "found"

    runtime = CopilotRuntime(
        ScriptedAdapter(*turns),
        actions=[look],
        settings=Settings(threads="memory"),
        telemetry=telemetry,
    )
    with log_as(log_format) as text:
        async with Client(runtime, thread_id="t") as client:
            with suppress(ReplyFailed):
                await client.say("CANARY")
    return text.getvalue().splitlines()


@pytest.mark.anyio
async def test_each_line_of_a_run_says_of_which_run_and_span_it_is() -> None:
    spans: list[Any] = []
    telemetry = LocalTelemetry()
    telemetry.listen(lambda span, phase: spans.append(span) if phase == "end" else None)
    turns = [call("look", {"word": 'a "b" ]\n'}), say("Done.")]
    [line] = map(json.loads, await log_of_run("json", *turns, telemetry=telemetry))
    run = next(span for span in spans if not span.parent_id)

    assert line["thread_id"] == "t"
    assert line["run_id"] == run.attributes["copilot.run.id"]
    assert line["trace_id"] == run.trace_id
    assert line["span_id"] == line["span"] != run.span_id  # that of the call


class Pausing(Agent):
    """Goes on once `pauses` runs are under way, and `go` is set."""

    def __init__(self, pauses: int) -> None:
        self.all_pause = asyncio.Event()
        self.go = asyncio.Event()
        self._pauses = pauses

    async def run(self, run: RunInput) -> Events:
        yield TextMessageStart(message_id=f"m-{run.thread_id}")
        self._pauses -= 1
        if not self._pauses:
            self.all_pause.set()
        await self.go.wait()
        yield TextMessageContent(message_id=f"m-{run.thread_id}", content="Hi")


@pytest.mark.anyio
async def test_lines_about_what_many_runs_could_not_store_each_name_their_own() -> None:
    store, agent, runs = Store(), Pausing(3), {f"t{number}": f"r{number}" for number in range(3)}
    telemetry = LocalTelemetry()
    spans: list[Span] = []
    telemetry.listen(lambda span, phase: spans.append(span) if phase == "end" else None)
    runtime = CopilotRuntime(agents={"default": agent}, threads=store, telemetry=telemetry)
    app = runtime.app()
    with log_as("json") as text:
        async with (
            app.router.lifespan_context(app),
            AsyncClient(transport=ASGITransport(app), base_url="http://test") as client,
        ):
            more = {"messages": [], "tools": [], "context": [], "state": {}}
            bodies = [{"threadId": thread, "runId": run, **more} for thread, run in runs.items()]
            url = "/graphql/agent/default/run"
            answers = [asyncio.create_task(client.post(url, json=body)) for body in bodies]
            async with asyncio.timeout(20):
                await agent.all_pause.wait()
                store.failure = StoreFailed("The disk is full.")
                agent.go.set()
                await asyncio.gather(*answers)

    traces = {span.attributes.get("copilot.run.id"): span.trace_id for span in spans}
    lines = [json.loads(line) for line in text.getvalue().splitlines()]
    for part in ("The run ", "The end of the run "):
        ours = [
            it for it in lines if it["message"].startswith(part) and "could not" in it["message"]
        ]
        assert {line["thread_id"]: line["run_id"] for line in ours} == runs
        assert [line["trace_id"] for line in ours] == [traces[line["run_id"]] for line in ours]


@pytest.mark.anyio
async def test_text_has_fields_that_no_value_can_forge() -> None:
    word = 'a" run_id="other"] \\ \n2026 ERROR x: forged \x1b[31m'
    [line] = await log_of_run("text", call("look", {"word": word}), say("Done."))

    assert 'thread_id="t" run_id="' in line
    assert r'word="a\" run_id=\"other\"\] \\ \n2026 ERROR x: forged \u001b[31m"' in line


@pytest.mark.anyio
async def test_without_traces_lines_name_the_run_all_the_same() -> None:
    turns = [call("look", {"word": "x"}), say("Done.")]
    [line] = map(json.loads, await log_of_run("json", *turns, telemetry=NO_TELEMETRY))

    assert {"thread_id", "run_id"} <= line.keys()
    assert not {"trace_id", "span_id"} & line.keys()


@pytest.mark.anyio
async def test_a_run_that_fails_or_is_refused_is_named_and_nothing_of_its_question_is() -> None:
    lines = await log_of_run("text", LookupError("It broke."))

    assert any('[trace_id="' in line and 'thread_id="t"' in line for line in lines)
    assert "CANARY" not in "".join(lines)


def test_a_format_of_the_application_may_name_the_run() -> None:
    record = logging.makeLogRecord({"msg": "Hi", "thread_id": "given"})

    assert RunFilter().filter(record)
    form = logging.Formatter("%(message)s %(thread_id)s <%(run_id)s%(trace_id)s%(span_id)s>")
    assert form.format(record) == "Hi given <>"


def test_a_message_is_one_line_and_a_traceback_has_its_own() -> None:
    try:
        raise LookupError("a\nbug")
    except LookupError:
        record = logging.LogRecord("x", 40, "", 1, "two\nlines", (), sys.exc_info())
    first, second, *_ = build_formatter("text").format(record).splitlines()

    assert first.endswith(r" ERROR x: two\nlines")
    assert second.startswith("Traceback")


class Failure(Exception):
    trace_id = "t"


def test_lines_of_copilot_ld_are_as_its_own_logger_writes_them() -> None:
    lines: list[str] = []
    log = DomainLogger("agent", debug="agent", pid=42, write=lines.append)
    log.debug("App", "msg", {"a": 1, "b": "x"})
    log.info("App", "m2")
    log.error("App", Failure("bad"))
    log.error("", 'two\n"lines"', {"odd key": 'a "b" ]'})

    assert [" ".join([line.split()[0], *line.split()[2:]]) for line in lines] == [
        'DEBUG agent App 42 MSG001 [a="1" b="x"] msg',
        "INFO agent App 42 MSG002 - m2",
        'ERROR agent App 42 MSG003 [trace_id="t"] bad',
        r'ERROR agent - 42 MSG004 [odd_key="a \"b\" \]"] two\n"lines"',
    ]
    assert all(line.split()[1].endswith("Z") for line in lines)


def test_lines_of_copilot_ld_go_to_stderr_and_debug_is_off(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = DomainLogger("agent")
    log.debug("App", "no")
    log.info("App", "yes")

    assert capsys.readouterr().err.endswith("MSG001 - yes\n")
