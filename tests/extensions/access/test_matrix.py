"""Every door of a server with everything: who gets in, and that nobody sees what is another's.

`python -m tests.extensions.access.matrix --full` tries
 each door with each credential and each person.
"""

import asyncio
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from copilot_runtime import CopilotRuntime, DemoAdapter, Settings
from copilot_runtime.cli.http_protocol import limit_reading
from copilot_runtime.extensions.access.audit.log import AuditLog
from copilot_runtime.transports.transport import Transport
from tests.documents import DOCS, ROOT
from tests.extensions.access.credentials import WAYS, Entrance, entering, settings_of
from tests.extensions.access.matrix.callers import BASE
from tests.extensions.access.matrix.doors import list_doors
from tests.extensions.access.matrix.report import Report, run_matrix
from tests.extensions.access.matrix.rows import ROWS
from tests.extensions.access.test_audit import audited, read
from tests.in_one_test import in_one_test
from tests.wire_agui.http import Browser
from tests.wire_agui.server import PATH, Parrot, serving
from tests.wire_agui.strangers import MINE, V1, Asking, attempt, fill
from tests.wire_agui.strangers import WAYS as ROUTES


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Return what came of all requests, in one server."""
    return asyncio.run(run_matrix(tmp_path_factory.mktemp("matrix")))


def describe(report: Report, part: str) -> list[str]:
    assert report.asked[part] > 0
    return [str(finding) for finding in report.findings[part]]


def test_every_door_of_the_application_is_tried(report: Report) -> None:
    unknown = [
        f"{door} has no row: say in matrix/rows what is asked there, and in "
        "docs/access/threat-model.md who may"
        for door in sorted({*report.doors} - {*ROWS})
    ]

    assert unknown == []
    assert {*ROWS} - {*report.doors} == set(), "these doors are gone"
    assert len(ROWS) > 200


def test_the_doors_are_open_to_whom_things_belong(report: Report) -> None:
    assert describe(report, "Ann") == []


def test_no_door_opens_to_a_credential_that_is_forged_late_or_missing(report: Report) -> None:
    assert describe(report, "strangers") == []


def test_a_token_of_a_service_opens_one_door_once(report: Report) -> None:
    assert describe(report, "replays") == []


def test_a_key_without_scopes_sees_nothing(report: Report) -> None:
    assert describe(report, "scopes") == []


def test_no_door_shows_one_person_what_is_of_another(report: Report) -> None:
    assert describe(report, "people") == []


def test_no_stream_shows_one_person_what_another_does_as_it_happens(report: Report) -> None:
    assert describe(report, "live") == []


def test_no_tool_of_mcp_shows_one_person_what_is_of_another(report: Report) -> None:
    assert describe(report, "tools") == []


def test_operators_see_plans_and_traces_and_no_threads(report: Report) -> None:
    assert describe(report, "operator") == []


def test_no_answer_tells_whether_another_has_what_is_asked_for(report: Report) -> None:
    assert describe(report, "existence") == []


def test_nobody_changes_what_is_of_another(report: Report) -> None:
    assert describe(report, "changes") == []


def test_a_new_route_or_transport_is_a_door_without_a_row() -> None:
    class Forgotten(Transport):
        paths = ("forgotten/{id}",)

    runtime = CopilotRuntime(
        DemoAdapter(),
        transports=["agui", lambda _: Forgotten()],
        settings=Settings(threads="memory"),
    )
    app = runtime.app(path=BASE)
    app.add_api_route("/mine", lambda: "", methods=["PUT"])

    assert {*list_doors(runtime, app)} - {*ROWS} == {"Forgotten forgotten/{id}", "PUT /mine"}


pytestmark = pytest.mark.anyio

PAIRS = {
    "two users": (("ada", "acme"), ("eve", "acme")),
    "two tenants": (("ada", "acme"), ("ada", "evil")),
    "no tenant": (("ada", "acme"), ("ada", "")),
    "a name that looks like a tenant's": (("ada", "acme"), ("acme/ada", "")),
    "a tenant that looks like a name": (("a", "b"), ("b/a", "b")),
}


async def sign_in(server: Entrance, way: str, user: tuple[str, str]) -> Browser:
    """A service has no tenant, so that its name has to differ."""
    name, tenant = user
    return await server.sign_in(
        way, f"{tenant or 0}-{name}" if way == "service_tokens" else name, tenant
    )


def settings_with_tenants(path: Path) -> Any:
    settings = settings_of(path)
    return settings.model_copy(
        update={"jwt": settings.jwt.model_copy(update={"tenant_claim": "org"})}
    )


CASES = [
    (way, pair)
    for way in WAYS
    for pair in PAIRS
    if way == "api_keys" or pair in ("two users", "two tenants")
]


@in_one_test(("way", "pair"), CASES)
async def test_whatever_one_tries_by_whichever_route_the_thread_of_the_other_does_not_exist(
    tmp_path: Path, way: str, pair: str
) -> None:
    model = Parrot()
    # it is the proxy who says so here
    ways = [it for it in (*ROUTES, V1) if way != "proxy" or it.name != "read as forwarded"]
    settings = settings_with_tenants(tmp_path)
    async with entering(tmp_path, model, settings, agents={"asking": Asking()}) as server:
        ada, eve = [await sign_in(server, way, user) for user in PAIRS[pair]]
        await fill(ada)
        found = await attempt(ada, eve, model, ways)

    before, after = found.before, found.after
    assert found.leaks == {}
    assert found.answer[-1]["type"] == "RUN_FINISHED"
    assert after[0]["messages"][: len(before[0]["messages"])] == before[0]["messages"]
    assert after[2] == before[2]
    assert [thread["name"] for thread in after[3]["threads"]] == ["Ada's"]


async def test_one_person_is_the_same_by_a_key_by_a_token_and_by_a_proxy(tmp_path: Path) -> None:
    async with entering(tmp_path, settings=settings_with_tenants(tmp_path)) as server:
        await (await server.sign_in("jwt", "ada", "acme")).run(thread=MINE)
        threads = [
            (await (await server.sign_in(way, "ada", "acme")).ask("GET", "/threads")).json()
            for way in ("api_keys", "jwt", "proxy")
        ]

    assert [[thread["id"] for thread in one["threads"]] for one in threads] == [[MINE]] * 3


LONG = "%41" * 10_000
LONGEST_ID = "%F0%9F%98%80" * 500


@in_one_test(
    ("method", "path"),
    [
        ("DELETE", f"/threads/{LONG}"),
        ("GET", f"/threads/{LONG}/messages"),
        ("POST", f"/agent/{LONG}/run"),
        ("GET", f"/{LONG}"),
        ("GET", f"/a2a/{LONG}/.well-known/agent-card.json"),
    ],
)
async def test_a_path_that_is_too_long_is_refused_and_not_written_down(
    tmp_path: Path, method: str, path: str
) -> None:
    async with entering(tmp_path, settings=audited(tmp_path)) as server:
        browser = server.browser()
        answer = await browser.ask(method, path)
        longest = await browser.ask("DELETE", f"/threads/{LONGEST_ID}")
        await server.runtime.get(AuditLog).flush()

    assert (answer.status, longest.status) == (414, 401)
    assert [line["status"] for line in read(tmp_path / "audit.jsonl")] == [401]


@in_one_test(
    ("beginning", "answered"),
    [
        (f"GET {PATH}/info?{'x' * 40_000} HTTP/1.1\r\nhost: localhost\r\n\r\n", b"HTTP/1.1 401"),
        ("GET /" + "%41" * 6_000, b"HTTP/1.1 400"),
        ("GET /?" + "x" * 66_000, b"HTTP/1.1 400"),
    ],
)
async def test_a_url_without_an_end_closes_its_connection(
    tmp_path: Path, beginning: str, answered: bytes
) -> None:
    async with entering(tmp_path) as server:
        app = server.runtime.app(path=PATH)
        async with serving(app, http=limit_reading(60)) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(beginning.encode())
            answer = await reader.read(len(answered))
            writer.close()

    assert answer == answered


@in_one_test(
    "headers",
    [
        "a: b\r\n" * 300,
        f"a: {'x' * 10_000}\r\n" * 10,
        "a: " + "x" * 400_000,
        "x" * 400_000,
        "transfer-encoding: chunked\r\n\r\n0\r\n" + "a: b\r\n" * 300,
        "transfer-encoding: chunked\r\n\r\n0\r\na: " + "x" * 400_000,
        "transfer-encoding: chunked\r\n\r\n1;" + "x" * 400_000,
    ],
    ids=["many", "large", "value", "name", "trailers", "trailer", "extension"],
)
async def test_headers_without_an_end_are_refused(tmp_path: Path, headers: str) -> None:
    async with entering(tmp_path) as server:
        app = server.runtime.app(path=PATH)
        async with serving(app, http=limit_reading(60)) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"POST {PATH}/info HTTP/1.1\r\nhost: localhost\r\n{headers}".encode())
            answer = b""
            with suppress(ConnectionError):  # it is closed while this still writes
                answer = await reader.read()
            writer.close()

    assert b" 431 " in answer or answer == b"" or b" 401 " in answer
    assert reader.at_eof() or reader.exception() is not None


async def test_a_cookie_as_large_as_any_is_taken(tmp_path: Path) -> None:
    cookies = {f"x-cookie-{number}": "x" * 8_000 for number in range(7)}
    async with entering(tmp_path) as server:
        app = server.runtime.app(path=PATH)
        async with (
            serving(app, http=limit_reading(60)) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
        ):
            answers = [
                await client.get(f"{PATH}/info", headers={"authorization": "Bearer x", **cookies})
                for _ in range(3)
            ]

    assert [answer.status_code for answer in answers] == [401] * 3


PAGE = (DOCS / "access" / "threat-model.md").read_text()
DEFENDED = PAGE.partition("## What is defended")[2].partition("## What is not defended")[0]
THREATS = [
    line
    for line in DEFENDED.splitlines()
    if line.startswith("| ") and not line.startswith("| threat |")
]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_there_are_many_threats() -> None:
    assert len(THREATS) > 20


@in_one_test("row", THREATS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_each_line_of_what_is_defended_names_tests_that_are_there(row: str) -> None:
    tests = TEST.findall(row.split("|")[3])

    assert tests, "a line without a test is a wish"
    assert [name for path, name in tests if not has_test(ROOT / path, name)] == []


def has_test(path: Path, name: str) -> bool:
    return path.is_file() and re.search(rf"def {name}\(", path.read_text()) is not None
