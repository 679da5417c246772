import json
import re
import sys
from base64 import b64encode
from collections import Counter
from hashlib import sha256
from html import unescape
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode

import pytest
import yaml
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, DemoAdapter, ScriptedAdapter, Settings, action
from copilot_runtime.api import ActionContext, Adapter
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.cli.clock import get_time
from copilot_runtime.extensions import console
from copilot_runtime.extensions.console.pages import ChatPage, Shell, console_route, read_logo
from copilot_runtime.extensions.console.sandbox import sandbox_route
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio
FOLDER = Path(console.__file__).parent
CALL = ActionContext(thread_id="t", run_id="r", call_id="c", properties={}, headers={})


@pytest.fixture
def client() -> TestClient:
    return TestClient(Starlette(routes=[console_route(Shell(endpoint="/graphql"), ChatPage())]))


def test_the_page_knows_where_its_endpoint_is(client: TestClient):
    answer = client.get("/")

    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert 'data-endpoint="/graphql"' in answer.text


def test_every_part_of_the_page_is_in_the_page(client: TestClient):
    page = client.get("/").text
    parts = [part for part in FOLDER.rglob("*") if part.suffix in (".css", ".js")]

    others = {part.name for part in parts if part.read_text("utf-8") not in page}
    assert others == {"data.js", "widget.css", "widget.js"}  # of other pages


def test_a_mounted_page_adds_where_it_is_mounted():
    app = Starlette(
        routes=[
            Mount("/api/copilot", routes=[console_route(Shell(endpoint="/graphql"), ChatPage())])
        ]
    )

    assert 'data-endpoint="/api/copilot/graphql"' in TestClient(app).get("/api/copilot/").text


def test_a_page_behind_a_proxy_adds_the_path_the_proxy_took_away():
    app = Starlette(routes=[console_route(Shell(endpoint="/graphql"), ChatPage())])

    page = TestClient(app, root_path="/behind/").get("/").text

    assert 'data-endpoint="/behind/graphql"' in page


@action
def opening_hours(day: Literal["Friday", "Saturday"]) -> str:
    """Look up when the library is open."""
    return f"closed on {day}"


@in_one_test(
    ("adapter", "settings", "suggested"),
    [
        (DemoAdapter(), {}, {"default": ["Opening hours Saturday"]}),
        (ScriptedAdapter(), {}, {"default": []}),
        (DemoAdapter(), {"console": {"suggestions": ["Open?"]}}, {"default": ["Open?"]}),
        (
            DemoAdapter(),
            {"console": {"suggestions": {"guide": ["Open?"]}}},
            {"guide": ["Open?"], "default": ["Opening hours Saturday"]},
        ),
    ],
)
def test_suggestions_are_those_of_the_project_or_of_its_actions(
    adapter: Adapter, settings: dict[str, Any], suggested: dict[str, list[str]]
) -> None:
    chosen = Settings.model_validate({"threads": "memory", **settings})
    runtime = CopilotRuntime(adapter, actions=[opening_hours], settings=chosen)
    page = TestClient(runtime.app()).get("/").text

    found = re.search(r'id="chips"[^>]* data-own="([^"]*)"', page)
    assert found
    assert [*json.loads(unescape(found[1])).items()] == [*suggested.items()]


def test_the_page_says_how_a_program_with_the_demo_gets_a_model() -> None:
    runtime = CopilotRuntime(DemoAdapter(), settings=Settings(threads="memory"))
    page = TestClient(runtime.app()).get("/").text

    assert "has to name OpenAIAdapter() instead" in page
    assert 'data-demo=""' in page  # the tools to try are the demo's own


def test_a_strange_suggestion_cannot_leave_its_attribute():
    words = '"><script>alert(1)</script>'
    route = console_route(Shell(endpoint="/graphql"), ChatPage(suggestions={"default": [words]}))
    app = Starlette(routes=[route])

    assert "<script>alert" not in TestClient(app).get("/").text


def test_a_strange_path_cannot_leave_its_attribute():
    app = Starlette(
        routes=[console_route(Shell(endpoint='/"><script>alert(1)</script>'), ChatPage())]
    )

    assert "<script>alert" not in TestClient(app).get("/").text


def test_the_policy_allows_exactly_the_script_and_the_style_of_the_page(client: TestClient):
    answer = client.get("/")
    policy = dict(
        rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; ")
    )

    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["script-src"] == hashes_of("script", answer.text)
    assert policy["style-src"] == hashes_of("style", answer.text[: answer.text.index("<script>")])
    assert policy["frame-src"] == "'self'"


def test_the_sandbox_has_no_origin_and_reaches_what_its_query_names_and_nothing_else():
    app = Starlette(routes=[sandbox_route("/sandbox")])
    query = [
        ("resource", "https://cdn.example"),
        ("resource", "*"),
        ("resource", "https://a.example; script-src *"),
        ("resource", "data:"),
        ("connect", "wss://*.live.example:8443"),
        *[("frame", f"https://{'a' * 300}.example")],
        *[("base", f"https://b{number}.example") for number in range(100)],
    ]

    answer = TestClient(app).get(f"/sandbox?{urlencode(query)}")
    policy = dict(
        rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; ")
    )

    assert policy["script-src"] == "'unsafe-inline' https://cdn.example"
    assert policy["connect-src"] == "wss://*.live.example:8443"
    assert policy["frame-src"] == "'none'"
    assert len(policy["base-uri"].split()) == 30
    assert policy["sandbox"] == "allow-scripts allow-forms"
    assert policy["frame-ancestors"] == "'self'"
    bare = TestClient(app).get("/sandbox").headers["content-security-policy"]
    assert "http" not in bare


def test_no_page_shows_the_key_that_is_typed_into_it(client: TestClient) -> None:
    field = re.search(r'<input id="token"[^>]*>', client.get("/").text)

    assert field
    assert 'type="password"' in field[0]


def test_the_header_names_the_pages_that_there_are_and_marks_the_current_one() -> None:
    settings = Settings.model_validate(
        {
            "threads": "memory",
            "console": {"title": "Ferry <desk>"},
            "telemetry": {"store": "memory"},
        }
    )
    client = TestClient(CopilotRuntime(DemoAdapter(), settings=settings).app())
    page = client.get("/traces", headers={"accept": "text/html"}).text

    tabs = re.findall(r'<a href="([^"]+)"( aria-current="page")?>(\w+)</a>', page)
    assert tabs == [("/chat", "", "Chat"), ("/traces", ' aria-current="page"', "Traces")]
    assert "<title>Traces · Ferry &lt;desk&gt;</title>" in page


BROWSER = {"accept": "text/html"}


@in_one_test("path", ["/knowledge", "/data", "/plans", "/traces", "/access"])
def test_a_page_that_is_off_tells_browsers_the_settings_that_turn_it_on(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pages").mkdir()
    off = Settings.model_validate({"threads": "memory", "telemetry": {"enabled": False}})
    client = TestClient(CopilotRuntime(DemoAdapter(), settings=off).app())
    answer = client.get(path, headers=BROWSER)
    lines = re.search(r"<pre[^>]*>(.*?)</pre>", answer.text, re.DOTALL)

    assert answer.status_code == 404
    assert client.get(path).headers["content-type"] == "application/json"
    assert lines
    on = Settings.model_validate({"threads": "memory", **yaml.safe_load(unescape(lines[1]))})
    client = TestClient(CopilotRuntime(DemoAdapter(), settings=on).app())
    assert client.get(path, headers=BROWSER).status_code == 200


def test_a_page_that_is_off_gives_way_to_a_route_of_the_program() -> None:
    runtime, own = CopilotRuntime(DemoAdapter(), settings=Settings(threads="memory")), FastAPI()
    runtime.mount(own, "/graphql", console=True)
    for app in (runtime.app(), own):
        app.add_api_route("/plans", lambda: "ours")
        assert TestClient(app).get("/plans", headers=BROWSER).json() == "ours"


def test_the_page_traces_says_how_to_install_prices_that_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime = CopilotRuntime(DemoAdapter(), settings=Settings(threads="memory"))
    client, command = TestClient(runtime.app()), "pip install 'copilot-runtime[prices]'"
    assert command not in unescape(client.get("/traces", headers=BROWSER).text)
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert command in unescape(client.get("/traces", headers=BROWSER).text)


def test_a_browser_gets_a_page_for_an_address_that_nothing_has_also_below_a_mount() -> None:
    app, outer = CopilotRuntime(DemoAdapter(), settings=Settings(threads="memory")).app(), FastAPI()
    outer.mount("/below", app)
    app.add_api_route("/ours", lambda: "ours", methods=["POST"])
    for client, home in ((TestClient(app), "/"), (TestClient(outer), "/below/")):
        page = client.get(f"{home}nowhere/at/all", headers=BROWSER)
        assert (page.status_code, page.headers["content-type"][:9]) == (404, "text/html")
        assert f'<a href="{home}">Go to the chat</a>' in page.text
        assert client.get(f"{home}nowhere").json() == {"detail": "Not Found"}
        assert client.get(f"{home}ours", headers=BROWSER).status_code == 405
        assert client.post(f"{home}nowhere", headers=BROWSER).status_code == 404
        slash = client.get(f"{home}traces/", headers=BROWSER, follow_redirects=False)
        assert slash.status_code == 307


def test_a_logo_is_a_picture_in_the_page_and_a_missing_one_is_named(tmp_path: Path) -> None:
    logo = tmp_path / "logo.svg"
    logo.write_text("<svg/>")

    assert read_logo(str(logo)) == "data:image/svg+xml;base64,PHN2Zy8+"
    with pytest.raises(ConfigurationFailed, match=r"no\.png"):
        read_logo("no.png")


def test_the_page_needs_nothing_from_anywhere_else(client: TestClient):
    page = client.get("/").text

    own = page[: page.index("</style>")] + page[page.rindex("<script>") :]
    # the namespace of pictures and the name of a catalog: nobody asks there
    assert set(re.findall(r"https?://[\w.]+", own)) == {"http://www.w3.org", "https://a2ui.org"}
    assert "innerHTML" not in own
    assert not re.search(r"\s(style|onclick|onload)=", page[: page.index("<script>")])
    assert not re.search(r"<(script|link|img)[^>]* (src|href)=\"(?!data:)", page)


@in_one_test("path", ["/", "/data", "/plans", "/traces"])
def test_no_script_of_a_page_replaces_a_function_of_another(path: str, tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_text("region,total\nnorth,1\n")
    sections = {
        "threads": "memory",
        "analyst": {"name": "analyst", "data": [str(tmp_path / "*.csv")], "store": "memory"},
        "planner": {"name": "planner", "store": "memory"},
        "telemetry": {"store": "memory"},
    }
    runtime = CopilotRuntime(DemoAdapter(), settings=Settings.model_validate(sections))
    page = TestClient(runtime.app()).get(path, headers=BROWSER).text

    own = page[page.rindex("<script>") :]
    names = re.findall(r"^(?:(?:async )?function\*?|class|const|let) (\w+)", own, re.MULTILINE)
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_a_browser_that_has_the_page_is_not_sent_it_again(client: TestClient):
    first = client.get("/")
    again = client.get("/", headers={"if-none-match": f'"other", W/{first.headers["etag"]}'})

    assert first.headers["cache-control"] == "no-cache"
    assert (again.status_code, again.content) == (304, b"")


def test_the_page_is_only_read(client: TestClient):
    assert client.head("/").status_code == 200
    assert client.post("/").status_code == 405


async def test_the_clock_knows_large_cities():
    assert get_time.run
    assert re.fullmatch(r"\d\d:\d\d in New York", await get_time.run({"city": "New York"}, CALL))


async def test_the_clock_says_which_city_it_does_not_know():
    assert get_time.run
    with pytest.raises(ValueError, match="'Atlantis'"):
        await get_time.run({"city": "Atlantis"}, CALL)


def hashes_of(element: str, page: str) -> str:
    found = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
    digests = [b64encode(sha256(content.encode()).digest()).decode() for content in found]
    return " ".join(f"'sha256-{digest}'" for digest in digests)
