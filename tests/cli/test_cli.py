"""The command line, as a person meets it: in a process of its own."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from copilot_runtime import __version__
from copilot_runtime.cli.listen import reserve_port
from tests.in_one_test import in_one_test
from tests.processes import Program, finished, in_terminal, running

ROOT = Path(__file__).parents[2]
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("COPILOT", "OPENAI", "ANTHROPIC", "GOOGLE", "GEMINI", "PYTEST"))
} | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", "COLUMNS": "100"}
COMMAND = [sys.executable, "-m", "copilot_runtime"]


class Start:
    """Starts servers on free ports; each call returns the banner."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self.programs: list[Program] = []
        self._folder = folder
        self._stack = stack

    def __call__(self, *arguments: str, **environ: str) -> str:
        command = [*COMMAND, "serve", "--port", "0", *arguments]
        program = self._stack.enter_context(running(command, cwd=self._folder, env=CLEAN | environ))
        self.programs.append(program)
        return program.until(r"(?s)\A.*^Ctrl-C.*$")[0]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with contextlib.ExitStack() as stack:
        yield Start(tmp_path, stack)


def run(
    *arguments: str, cwd: Path = ROOT, given: str = "", **environ: str
) -> subprocess.CompletedProcess[str]:
    return finished([*COMMAND, *arguments], cwd=cwd, env=CLEAN | environ, given=given)


def url_in(banner: str) -> str:
    found = re.search(r"http://\S+", banner)
    assert found is not None
    return found[0].rstrip("/")


def complaint(*arguments: str, cwd: Path = ROOT, environ: Mapping[str, str] | None = None) -> str:
    """Return what a command that fails says; it must be an error and no traceback."""
    done = run(*arguments, cwd=cwd, **(environ or {}))
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr


def test_the_version_is_shown() -> None:
    assert run("--version").stdout == f"copilot-runtime {__version__}\n"


@in_one_test(
    "command", ["", "serve", "chat", "develop mcp", "develop schema", "knowledge", "settings"]
)
def test_help_comes_with_examples_or_an_explanation(command: str) -> None:
    done = run(*command.split(), "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) > 6


def test_the_schema_is_printed_as_it_is() -> None:
    from copilot_runtime.transports.graphql.schema import sdl

    assert run("develop", "schema").stdout.strip() == sdl().strip()


def test_plugins_are_listed_with_what_keeps_them_from_working(tmp_path: Path) -> None:
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[copilot_runtime.adapters]\nacme = acme:Adapter\n")
    done = run("develop", "plugins", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert re.search(r"demo +copilot-runtime +\S+:DemoAdapter +ready", done.stdout)
    assert re.search(r"acme +acme +acme:Adapter +The adapter 'acme' .* No module", done.stdout)


def test_a_plugin_whose_name_is_taken_is_listed_as_not_used(tmp_path: Path) -> None:
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[copilot_runtime.adapters]\ndemo = acme:Adapter\n")
    done = run("develop", "plugins", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")

    assert re.search(
        r"demo +acme +acme:Adapter +not used: the name is taken by copilot", done.stdout
    )


def test_plugins_says_what_a_part_needs_and_how_to_get_it_from_where_we_came(
    tmp_path: Path,
) -> None:
    script = tmp_path / "without.py"
    script.write_text(
        "from importlib import metadata\n"
        "version = metadata.version\n"
        "def find(name):\n"
        "    if name == 'asyncpg':\n"
        "        raise metadata.PackageNotFoundError(name)\n"
        "    return version(name)\n"
        "metadata.version = find\n"
        "import sys\n"
        "from copilot_runtime.cli.main import main\n"
        "sys.argv = ['copilot-runtime', 'develop', 'plugins']\n"
        "main()\n"
    )
    done = finished([sys.executable, str(script)], cwd=tmp_path, env=CLEAN)

    assert re.search(r"bedrock .* ready \(botocore \d", done.stdout)
    assert re.search(r"postgres .* needs asyncpg: pip install .*\[postgres\]'", done.stdout)


def test_a_server_with_reload_serves_what_was_changed_and_has_the_traces_of_before(
    tmp_path: Path,
) -> None:
    program = tmp_path / "main.py"
    code = (
        "from copilot_runtime import CopilotRuntime, DemoAdapter\n"
        "runtime = CopilotRuntime(DemoAdapter())\nprint('PRINTED', flush=True)\n"
    )
    program.write_text(code.replace("PRINTED", "first"))
    command = [*COMMAND, "serve", "main:runtime", "--port", "0", "--reload"]
    with running(command, cwd=tmp_path, env=CLEAN | {"PYTHONUNBUFFERED": "1"}) as server:
        url = server.until(r"(?s)first.*runtimeUrl +(\S+).*^Ctrl-C.*$")[1]
        finished([*COMMAND, "chat", "--url", url, "-m", "Hello"], cwd=tmp_path, env=CLEAN)
        program.write_text(code.replace("PRINTED", "second"))
        url = server.until(r"(?s)second.*runtimeUrl +(\S+).*^Ctrl-C.*$")[1]
        with urlopen(f"{url}/traces") as answer:
            traces = json.load(answer)["traces"]

    assert len(traces) == 1


def test_settings_are_listed_with_their_value_now() -> None:
    done = run("settings", COPILOT_PORT="1234")
    assert re.search(r"port +COPILOT_PORT +1234 +Port; 0 picks a free one", done.stdout)


def test_a_pipe_that_ends_early_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "a.test.yml").write_text("scenarios: [{name: a, say: Hi, script: [Hello.]}]")
    for words in ("develop schema", f"test {tmp_path}"):
        shell = f"'{sys.executable}' -m copilot_runtime {words} | true"
        done = finished(["bash", "-c", shell], cwd=ROOT, env=CLEAN)
        assert done.stderr == ""


def test_without_a_key_the_demo_is_served_and_says_so(start: Start) -> None:
    banner = start()
    assert "serves demo" in banner
    assert "rules answer in place of a model" in banner
    assert re.search(r"runtimeUrl  http://127\.0\.0\.1:\d+/graphql", banner)


def test_the_banner_names_the_settings_file_and_where_threads_are(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "copilot.yml").write_text("threads: sqlite:chats.db\n")
    banner = start()
    assert f"settings    {tmp_path / 'copilot.yml'}\n" in banner
    assert f"threads     sqlite:{tmp_path / 'chats.db'}\n" in banner
    assert "threads     sqlite:" + str(tmp_path / "x.db") in start(COPILOT_THREADS="sqlite:x.db")


@pytest.mark.parametrize("words", [[], ["--workers", "2"]])
def test_the_banner_has_the_addresses_of_a_runtime_that_a_program_mounts(
    words: list[str], start: Start, tmp_path: Path
) -> None:
    (tmp_path / "main.py").write_text(
        "from fastapi import FastAPI\nfrom copilot_runtime import CopilotRuntime, DemoAdapter\n"
        "app = FastAPI()\nCopilotRuntime(DemoAdapter()).mount(app, '/api', console=True)\n"
    )
    banner = start("main:app", *words)

    place = r"http://127\.0\.0\.1:\d+/"
    assert re.search(rf"try it      {place}\n  runtimeUrl  {place}api\n", banner), banner
    assert f"threads     sqlite:{tmp_path / '.copilot' / 'threads.db'}\n" in banner


def test_a_settings_file_beside_a_program_elsewhere_is_not_read_and_that_is_said(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "copilot.yml").write_text("access: {authenticate: [api_keys]}\n")
    (tmp_path / "sub" / "main.py").write_text(
        "from copilot_runtime import CopilotRuntime, DemoAdapter\n"
        "runtime = CopilotRuntime(adapter=DemoAdapter())\n"
    )
    banner = start("sub/main.py:runtime")
    assert "settings    no copilot.yml here: defaults, environment\n" in banner
    start.programs[-1].errors.until("lies beside the program and is not read")
    banner = start("sub/main.py:runtime", "--config", "sub/copilot.yml")
    assert f"settings    {tmp_path / 'sub' / 'copilot.yml'}\n" in banner
    start.programs[-1].process.terminate()
    assert "is not read" not in start.programs[-1].errors.text()


def test_who_listens_for_other_machines_without_a_login_is_told_in_one_line(start: Start) -> None:
    url = url_in(start("--host", "0.0.0.0"))
    server = start.programs[-1]
    server.errors.until("No authentication is configured")
    request = Request(f"{url}/health/ready", headers={"host": "app.example"})
    with urlopen(request) as answer:
        ready = json.load(answer)
    server.process.terminate()

    (line,) = server.errors.text().splitlines()
    assert "other machines can reach this server at 0.0.0.0" in line
    assert ready == {"status": "ready", "threads": "reachable"}


def test_workers_that_count_limits_each_for_itself_say_so_once(start: Start) -> None:
    start("--workers", "2", COPILOT_LIMITS_RUNS_PER_USER="3/minute")
    server = start.programs[-1]
    server.process.terminate()

    [line] = [line for line in server.errors.text().splitlines() if "for itself" in line]
    assert "Each of 2 workers counts for itself, so 2 times as much gets through" in line
    assert "limits.runs_per_user. Set limits.store to redis://" in line


def test_a_server_on_loopback_answers_only_for_this_machine(start: Start) -> None:
    url = url_in(start())
    for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
        with pytest.raises(HTTPError) as refused:
            urlopen(Request(f"{url}/graphql/info", headers=headers))
        assert refused.value.code in (403, 421)
        refused.value.close()
    with urlopen(
        Request(f"{url}/graphql/info", headers={"origin": "http://localhost:3000"})
    ) as answer:
        assert answer.status == 200


@in_one_test(
    ("name", "variable"),
    [
        ("openai", "OPENAI_API_KEY"),
        ("anthropic", "ANTHROPIC_API_KEY"),
        ("google", "GOOGLE_API_KEY"),
    ],
)
def test_a_key_that_is_missing_is_said_at_the_start(start: Start, name: str, variable: str) -> None:
    start(COPILOT_ADAPTER_NAME=name)
    assert start.programs[-1].errors.until(f"There is no API key .* Set {variable}")


@in_one_test(
    "environ",
    [
        {"OPENAI_API_KEY": "sk-1"},
        {"COPILOT_ADAPTER_NAME": "openai", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"},
        {"COPILOT_ADAPTER_NAME": "ollama"},
    ],
)
def test_nothing_is_said_of_a_key_that_is_there_or_not_needed(
    start: Start, environ: dict[str, str]
) -> None:
    start(**environ)
    program = start.programs[-1]
    program.end()
    assert "API key" not in program.errors.text()


def test_the_settings_file_chooses_the_adapter_and_the_path(start: Start, tmp_path: Path) -> None:
    (tmp_path / "copilot.yml").write_text(
        "path: /api/copilotkit\nadapter: {name: demo, options: {pace: 0}}\n"
    )
    assert "/api/copilotkit" in start()


@pytest.mark.parametrize(
    ("code", "target"),
    [
        ("runtime = CopilotRuntime(adapter=DemoAdapter(pace=0))", "mine:runtime"),
        ("runtime = CopilotRuntime(adapter=DemoAdapter(pace=0))", "mine"),
        ("app = CopilotRuntime(adapter=DemoAdapter(pace=0)).app()", "mine:app"),
        ("def make(): return CopilotRuntime(adapter=DemoAdapter(pace=0))", "mine:make"),
        ("def make(): return CopilotRuntime(adapter=DemoAdapter(pace=0)).app()", "./mine.py:make"),
        (
            "inner = CopilotRuntime(adapter=DemoAdapter(pace=0)).app()\n"
            "async def asgi(scope, receive, send): await inner(scope, receive, send)",
            "mine:asgi",
        ),
    ],
)
def test_a_runtime_an_app_or_a_function_can_be_served(
    start: Start, tmp_path: Path, code: str, target: str
) -> None:
    imports = "from copilot_runtime import CopilotRuntime, DemoAdapter\n"
    (tmp_path / "mine.py").write_text(imports + code)
    done = run("chat", "--url", url_in(start(target)), "-m", "hello")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Hello" in done.stdout


def test_a_runtime_keeps_the_path_it_chose_unless_told_otherwise(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(
        "from copilot_runtime import CopilotRuntime, Settings\n"
        "runtime = CopilotRuntime(settings=Settings(path='/own', console=False))\n"
    )
    assert url_in(start("mine")).endswith("/own")
    assert url_in(start("mine", "--path", "/other")).endswith("/other")


@in_one_test("name", ["runtime", "app", "mounted"])
def test_what_a_program_sets_counts_more_than_the_environment_and_less_than_an_option(
    tmp_path: Path, name: str
) -> None:
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        (tmp_path / "mine.py").write_text(
            "from fastapi import FastAPI\n"
            "from copilot_runtime import CopilotRuntime, DemoAdapter, Settings\n"
            f"settings = Settings(port={port}, log_format='json')\n"
            "runtime = CopilotRuntime(DemoAdapter(), settings=settings)\n"
            "app, mounted = runtime.app(), FastAPI()\n"
            "runtime.mount(mounted, '/graphql')\n"
        )
        for arguments, expected in (([], True), (["--port", "0"], False)):
            command = [*COMMAND, "serve", f"mine:{name}", *arguments]
            environ = CLEAN | {"COPILOT_PORT": "1"}
            with running(command, cwd=tmp_path, env=environ) as program:
                banner = program.errors.until(r"(?m)^.*Ctrl-C.*$")[0]
            assert (f":{port}" in json.loads(banner)["message"]) is expected


def test_a_model_without_a_key_is_warned_of_at_the_start_of_a_program(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.py").write_text(
        "from copilot_runtime import CopilotRuntime, OpenAIAdapter\n"
        "app = CopilotRuntime(OpenAIAdapter('gpt-4o')).app()\n"
    )
    with running([*COMMAND, "serve", "mine:app", "--port", "0"], cwd=tmp_path, env=CLEAN) as it:
        it.until(r"(?s)\A.*^Ctrl-C.*$")
        warning = it.errors.until(r"WARNING.*There is no API key.*")[0]
    assert "OPENAI_API_KEY" in warning


@in_one_test(
    ("target", "sentence"),
    [
        ("mien:runtime", r"No module named 'mien'\. Looked in .* Did you mean 'mine\.py'\?"),
        ("./mien.py:runtime", r"There is no file 'mien\.py'.* Did you mean 'mine\.py'\?"),
        ("mine:runtim", "has no 'runtim'. What could be served there: one, two"),
        ("mine", "has several things to serve: one, two"),
        ("mine:number", "is of type int: not a CopilotRuntime"),
        ("mine:wrong", "takes arguments"),
        ("mine:late", "is async"),
        ("lacking:app", "'lacking' imports 'no_such_package', which is not installed"),
        ("failing:app", "Importing 'failing' failed: ZeroDivisionError"),
        ("leaving:app", "Importing 'leaving' failed: SystemExit"),
        ("nothing", "has nothing to serve"),
    ],
)
def test_a_wrong_target_is_answered_with_a_way_out(
    tmp_path: Path, target: str, sentence: str
) -> None:
    (tmp_path / "mine.py").write_text(
        "from copilot_runtime import CopilotRuntime\n"
        "one = CopilotRuntime()\ntwo = CopilotRuntime()\nnumber = 5\n"
        "def wrong(a): ...\nasync def late(): ...\n"
    )
    (tmp_path / "lacking.py").write_text("import no_such_package\n")
    (tmp_path / "failing.py").write_text("1 / 0\n")
    (tmp_path / "leaving.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "nothing.py").write_text("")
    assert re.search(sentence, complaint("serve", target, cwd=tmp_path))


def test_a_planner_without_numpy_is_answered_with_the_extra_that_has_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import sys\nsys.modules['numpy'] = None\n"  # as where it is not installed
        "from copilot_runtime import CopilotRuntime\napp = CopilotRuntime()\n"
    )
    said = complaint("serve", "mine:app", cwd=tmp_path, environ={"COPILOT_PLANNER_NAME": "planner"})

    assert said.startswith("The planner needs the package 'numpy'. Install it with: pip install ")
    assert "'copilot-runtime[knowledge]'" in said


def test_a_server_told_to_stop_ends_open_answers_with_a_word(start: Start) -> None:
    url = url_in(start(COPILOT_STOP_TIMEOUT="0.1"))
    with running([*COMMAND, "chat", "--url", url, "-m", "tell me a long story"], env=CLEAN) as chat:
        chat.until(r"\w+ \w+")
        server = start.programs[-1]
        server.process.terminate()
        said = chat.errors.text()
    assert "The server stopped before the answer did. [RUN_INTERRUPTED]" in said
    assert "Traceback" not in server.errors.text()


SLOW = """
import asyncio
from copilot_runtime import CopilotRuntime

async def patient(run):
    print("begun", flush=True)
    yield "Begun."
    await asyncio.Event().wait()

async def stubborn(run):
    yield "Begun."
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            print("goes on", flush=True)

app = CopilotRuntime(agents={"patient": patient, "stubborn": stubborn}).app(path="/")
"""
ASK = {"messages": [{"id": "m", "role": "user", "content": "Hi"}], "threadId": "t", "runId": "r"}


@contextlib.contextmanager
def asking(url: str, agent: str) -> Generator[HTTPResponse]:
    """Ask a question over AG-UI and read the beginning of the answer."""
    data = json.dumps({**ASK, "state": {}, "tools": [], "context": []}).encode()
    headers = {"content-type": "application/json"}
    request = Request(f"{url}/agent/{agent}/run", data=data, headers=headers)
    with urlopen(request) as answer:
        while b"Begun." not in answer.readline():
            pass
        yield answer


EXITING = """
import asyncio, sys
from copilot_runtime import CopilotRuntime

async def leave():
    sys.exit(3)

async def exiting(run):
    yield "Begun."
    await asyncio.create_task(leave())  # as frameworks run their nodes and tools

app = CopilotRuntime(agents={"exiting": exiting}).app(path="/")
"""


def test_a_task_of_an_agent_that_exits_ends_its_run_and_not_the_server(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "leaving.py").write_text(EXITING)
    url = url_in(start("leaving:app"))
    for _ in range(2):
        with asking(url, "exiting") as answer:
            assert b"RUN_ERROR" in answer.read()
    with urlopen(f"{url}/health") as answer:
        assert answer.status == 200


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_answers_of_an_application_after_a_while(
    start: Start, tmp_path: Path, sign: signal.Signals
) -> None:
    (tmp_path / "mine.py").write_text(SLOW)
    url = url_in(start("mine:app", COPILOT_STOP_TIMEOUT="1"))
    with asking(url, "patient") as answer:
        server = start.programs[-1]
        server.process.send_signal(sign)
        rest = answer.read()
    server.wait()
    assert b'"code":"RUN_INTERRUPTED"' in rest.splitlines()[-2]
    (line,) = server.errors.text().splitlines()
    assert line.endswith("Cut off 1 answer as RUN_INTERRUPTED")


def test_a_v1_request_for_one_body_gets_what_was_said_before_the_signal(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(SLOW)
    url = url_in(start("mine:app", COPILOT_STOP_TIMEOUT="1"))
    document = """mutation($data: GenerateCopilotResponseInput!) {
        generateCopilotResponse(data: $data) { messages { ... on TextMessageOutput { content } } }
    }"""
    data = {
        "metadata": {},
        "frontend": {"actions": []},
        "agentSession": {"agentName": "patient"},
        "messages": [
            {
                "id": "m",
                "createdAt": "2026-01-01T00:00:00Z",
                "textMessage": {"role": "user", "content": "Hi"},
            }
        ],
    }
    body = json.dumps({"query": document, "variables": {"data": data}}).encode()
    headers = {"content-type": "application/json"}
    server = start.programs[-1]
    with ThreadPoolExecutor() as pool:
        request = Request(url, data=body, headers=headers)
        asked = pool.submit(lambda: urlopen(request).read())
        server.until("begun")
        server.process.terminate()
        answer = json.loads(asked.result())
    assert answer["data"]["generateCopilotResponse"]["messages"] == [{"content": ["Begun."]}]


def test_a_second_ctrl_c_ends_the_server_without_a_traceback(start: Start, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SLOW)
    url = url_in(start("mine:app", COPILOT_STOP_TIMEOUT="1"))
    with asking(url, "stubborn"):
        server = start.programs[-1]
        server.process.send_signal(signal.SIGINT)
        server.until("goes on")
        server.process.send_signal(signal.SIGINT)
        server.wait()
    assert "Traceback" not in server.errors.text()
    assert "does not end, and is abandoned" in server.errors.text()


def test_an_answer_that_does_not_end_is_left_behind(start: Start, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SLOW)
    url = url_in(start("mine:app", COPILOT_STOP_TIMEOUT="0.5"))
    with asking(url, "stubborn"):
        server = start.programs[-1]
        server.process.terminate()
        server.wait()
    assert "Traceback" not in server.errors.text()


def test_a_port_in_use_is_answered_with_another() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = complaint("serve", "--port", str(port))
    assert f"Port {port} on 127.0.0.1 is in use." in said
    assert re.search(r"--port \d+", said)


@in_one_test("host", ["127.0.0.1", "::1"])
def test_workers_do_not_join_a_port_that_others_share(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family, reuse_port=True) as shared:
        check_that_workers_are_refused(host, shared.getsockname()[1])


def test_workers_do_not_join_a_port_where_those_of_another_server_do_not_listen_yet() -> None:
    with reserve_port("127.0.0.1", 0) as reserved:
        check_that_workers_are_refused("127.0.0.1", reserved.getsockname()[1])


def check_that_workers_are_refused(host: str, port: int) -> None:
    words = ("serve", "--workers", "2", "--host", host, "--port", str(port))
    said = complaint(*words, environ={"COPILOT_THREADS": "sqlite:threads.db"})
    assert f"Port {port} on {host} is in use." in said
    assert re.search(r"--port \d+", said)


@in_one_test("is_shared", [False, True])
def test_workers_take_the_port_of_a_server_that_has_just_ended(is_shared: bool) -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=is_shared) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = server.accept()
            accepted.close()  # first: so the system remembers the connection here for a minute
            client.recv(1)
    with (
        reserve_port("127.0.0.1", port) as reserved,
        socket.create_server(("127.0.0.1", port), reuse_port=True) as worker,
    ):
        assert worker.getsockname() == reserved.getsockname()


def test_workers_do_not_join_a_port_for_grpc_that_others_share() -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as shared:
        port = shared.getsockname()[1]
        environ = {
            "COPILOT_THREADS": "sqlite:threads.db",
            "COPILOT_GRPC_SERVICES": "trace",
            "COPILOT_GRPC_ADDRESS": f"127.0.0.1:{port}",
        }
        said = complaint("serve", "--workers", "2", "--port", "0", environ=environ)
    assert f"Port {port} on 127.0.0.1 is in use; services over gRPC were to be there." in said
    assert "set grpc.address" in said


def test_a_host_that_nobody_knows_is_refused() -> None:
    assert "There is no host '..'." in complaint("serve", "--host", "..")


def test_an_address_of_another_machine_is_refused() -> None:
    assert "is not an address of this machine" in complaint("serve", "--host", "192.0.2.1")


def test_workers_that_could_not_share_their_threads_are_refused() -> None:
    said = complaint("serve", "--workers", "2", environ={"COPILOT_THREADS": "memory"})
    assert "cannot share threads that are in the memory" in said


@in_one_test(
    ("environ", "sentence"),
    [
        ({"COPILOT_ADAPTER_NAME": "opnai"}, "No adapter named 'opnai'.*Did you mean 'openai'"),
        (
            {"COPILOT_ADAPTER_NAME": "demo", "COPILOT_ADAPTER_OPTIONS": '{"speed": 1}'},
            "options of the adapter 'demo' are invalid: .*'speed'.* Known: pace",
        ),
        ({"COPILOT_PORT": "x"}, "COPILOT_PORT: 'port' is 'x'"),
        ({"COPILOT_PATH": "x"}, "COPILOT_PATH: 'path' is 'x'"),
        ({"COPILOT_TRANSPORTS": ""}, "'transports' is empty.*\nLeave it out"),
        ({"COPILOT_CORS_ORIGINS": "app.example"}, "'cors_origins' is 'app.example'.*https://"),
        ({"COPILOT_THREADS": "sqlit:t.db"}, "No store of threads.*memory, .*Did you mean 'sqlite'"),
        ({"COPILOT_KNOWLEDGE_STORAGE": "foo:bar"}, "No storage named 'foo'. Known: local, mem"),
        ({"COPILOT_THREADS": "sqlite://t.db"}, "two slashes.*\nWrite sqlite:t.db"),
    ],
)
def test_wrong_settings_stop_the_server_with_a_sentence(
    environ: dict[str, str], sentence: str
) -> None:
    assert re.search(sentence, complaint("serve", environ=environ))


@in_one_test("target", [[], ["main:mounted"]])
def test_threads_that_cannot_be_kept_stop_the_server_with_a_sentence(
    target: list[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "main.py").write_text(
        "from fastapi import FastAPI\n"
        "from copilot_runtime import CopilotRuntime\n"
        "mounted = FastAPI()\n"
        "CopilotRuntime().mount(mounted, '/api')\n"
    )
    environ = {"COPILOT_THREADS": "sqlite:file/threads.db"}
    said = complaint("serve", "--port", "0", *target, cwd=tmp_path, environ=environ)

    assert "Traceback" not in said
    assert "\nThe threads in 'file/threads.db' cannot be used: " in said


@in_one_test(
    ("content", "reason"),
    [
        (None, "keys.json: No such file or directory"),
        ('{"keys": []}', "keys.json has no key for RS256, ES256, EdDSA"),
        ('{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "keys.json has no key for RS256"),
        ("<html>", "keys.json: unexpected character"),
    ],
)
def test_a_file_without_a_key_of_tokens_stops_the_server_with_a_sentence(
    content: str | None, reason: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "keys.json").write_text(content)
    environ = {"COPILOT_ACCESS_AUTHENTICATE": "jwt", "COPILOT_JWT_JWKS": "keys.json"}
    said = complaint("serve", "--port", "0", cwd=tmp_path, environ=environ)

    assert re.search(f"jwt.jwks is 'keys.json', and there is no key .*({reason})", said), said
    assert f"relative to the working directory, which is '{tmp_path}'" in said


@in_one_test("workers", ["1", "2"])
def test_with_a_log_of_json_all_output_is_json(workers: str, tmp_path: Path) -> None:
    environ = CLEAN | {"COPILOT_LOG_FORMAT": "json", "COPILOT_WORKERS": workers}
    command = [*COMMAND, "serve", "--port", "0"]
    with running(command, cwd=tmp_path, env=environ) as program:
        line = program.errors.until(r"^.*runtimeUrl.*$")[0]
        program.end()
        lines = program.errors.text().splitlines()
        assert program.output.text() == ""
    record = json.loads(line)
    assert record["level"] == "info"
    assert re.search(r"serves demo.*; try it +http://.*; runtimeUrl +http://", record["message"])
    assert all(json.loads(each) for each in lines)


def test_with_a_log_of_json_a_failed_start_is_a_record_with_its_hint() -> None:
    words = ("serve", "--workers", "2")
    done = run(*words, COPILOT_LOG_FORMAT="json", COPILOT_THREADS="memory")
    record = json.loads(done.stderr.splitlines()[-1])

    assert (done.returncode, done.stdout, record["level"]) == (1, "", "error")
    assert "cannot share threads that are in the memory of one process. Set" in record["message"]


def test_debug_shows_the_traceback() -> None:
    done = run("serve", "--workers", "2", "--debug", COPILOT_THREADS="memory")
    assert "Traceback" in done.stderr


def test_one_message_shows_text_actions_and_their_results(start: Start) -> None:
    done = run("chat", "--url", url_in(start()), "--message", "What time is it in Paris?")
    assert (done.returncode, done.stderr) == (0, "")
    shown = done.stdout.splitlines()
    assert shown[0] == '  → get_time({"city": "Paris"})'
    assert re.fullmatch(r"  ← get_time: \d\d:\d\d in Paris", shown[1])
    assert shown[2].startswith("The action `get_time` answered")


def test_a_pipe_is_one_message(start: Start) -> None:
    done = run("chat", "--url", url_in(start()), given="get time in Rome\n")
    assert done.returncode == 0
    assert "→ get_time" in done.stdout


def test_a_failure_is_shown_and_is_the_exit_code(start: Start) -> None:
    done = run("chat", "--url", url_in(start()), "-m", "show me an error")
    assert done.returncode == 1
    assert "because you asked for an error. [NETWORK_ERROR]" in done.stderr


def test_an_unknown_agent_is_named(start: Start) -> None:
    said = complaint("chat", "--url", url_in(start()), "-m", "hi", "--agent", "nobody")
    assert "Agent 'nobody' does not exist\nKnown: default." in said


def test_who_has_to_sign_in_is_told_by_which_option(start: Start, tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'access.db'}"
    url = url_in(start(COPILOT_ACCESS_AUTHENTICATE="api_keys", COPILOT_API_KEYS_STORE=store))
    said = complaint("chat", "--url", url, "-m", "hi")
    assert "to use this server.\nSign in with a header: -H 'Authorization: Bearer ...'" in said
    assert "-H 'Cookie: session=…'" in said
    assert "-H" not in complaint(
        "chat", "--url", url, "-m", "hi", "-H", "Authorization: Bearer nonsense"
    )


@in_one_test(
    ("arguments", "sentence"),
    [
        (["http://127.0.0.1:9", "-m", "hi"], "The connection was refused"),
        (["ftp://127.0.0.1", "-m", "hi"], "is not the URL of a runtime"),
        (["http://127.0.0.1:9", "-m", "hi", "-H", "nonsense"], "is not a header"),
        (["http://127.0.0.1:9", "-m", "hi", "-H", "x: a\nb: c"], "is not a header"),
        (["http://127.0.0.1:9", "-m", "hi", "-H", "ü: e"], "is not a header"),
        (["http://127.0.0.1:9", "-m", "hi", "-H", "a b: c"], "is not a header"),
        (["http://127.0.0.1:9"], "the input is empty"),
    ],
)
def test_what_cannot_be_talked_to_is_said(arguments: list[str], sentence: str) -> None:
    assert sentence in complaint("chat", "--url", *arguments)


FIRST = b'data: {"type":"RUN_STARTED","threadId":"t","runId":"r"}\n\n'
STREAM = "text/event-stream"


@in_one_test(
    ("kind", "body", "sentence"),
    [
        (STREAM, FIRST, "broke off in the middle"),
        (STREAM, b"data: {nonsense\n\n", "An event is not valid JSON."),
        (STREAM, b"data: []\n\n", "An event is not an object."),
        (STREAM, b"", "broke off in the middle"),
        ("text/html", b"<html>", "does not speak the protocol of CopilotKit"),
        ("application/json", b'{"errors":[{"message":"No."}]}', "does not speak the protocol"),
        ("application/json", b'{"error":"invalid_request","message":"No."}', "No."),
        ("application/json", b'{"detail":"Not Found"}', "does not speak the protocol"),
    ],
)
def test_an_answer_that_is_none_is_an_error(kind: str, body: bytes, sentence: str) -> None:
    with answering(kind, body) as url:
        assert sentence in complaint("chat", "--url", url, "-m", "hi")


def test_a_runtime_that_dies_is_said_in_a_sentence() -> None:
    with answering(STREAM, FIRST, missing=9) as url:
        said = complaint("chat", "--url", url, "-m", "hi")
    assert said.startswith("The runtime broke off in the middle of the answer.\n")


def test_what_would_command_the_terminal_is_not_shown() -> None:
    events = [
        {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "\u001b[2Jbare"},
        {"type": "TEXT_MESSAGE_END", "messageId": "m"},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
    ]
    body = FIRST + b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)
    with answering(STREAM, body) as url:
        assert run("chat", "--url", url, "-m", "hi").stdout == "[2Jbare\n"


def test_ctrl_c_stops_the_answer_and_ctrl_d_ends_the_program(start: Start) -> None:
    # a word a second: the story is long enough for any machine
    url = url_in(start(COPILOT_ADAPTER_OPTIONS='{"pace": 1}', COPILOT_ADAPTER_NAME="demo"))
    with in_terminal([*COMMAND, "chat", "--url", url], cwd=ROOT, env=CLEAN) as (program, terminal):
        program.until("> ")
        os.write(terminal, b"tell me a long story\n")
        program.until("story\r\n")
        program.until(r"\w+ \w+ \w+")
        program.process.send_signal(signal.SIGINT)
        program.until(r"\(stopped\)")
        program.until("> ")
        os.write(terminal, b"hello\n")
        program.until("Hello")
        program.process.send_signal(signal.SIGINT)
        program.until("\n> ")
        os.write(terminal, b"\x04")
        assert program.wait() == 0


@contextlib.contextmanager
def answering(kind: str, body: bytes, missing: int = 0) -> Generator[str, None, None]:
    """Serve one answer to everything, whose last bytes may be missing."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.do_GET()

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            if missing:
                self.send_header("content-length", str(len(body) + missing))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/graphql"
        server.shutdown()
        thread.join()
