"""What the A2A server refuses: pages, strangers, and requests that are none."""

import json
from typing import Any

import httpx
import pytest

from copilot_runtime.extensions.a2a.server.decode import TaskKey, derive_id, parse_task_id
from tests.extensions.a2a.server.clients import asking, at_a2a
from tests.in_one_test import in_one_test
from tests.transports.served import at_work, by_token
from tests.wire_agui.http import Browser

pytestmark = pytest.mark.anyio

CARD = ".well-known/agent-card.json"
HI = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}


def url_of(browser: Browser, path: str = "echo") -> str:
    return f"http://127.0.0.1:{browser.where}{browser.base}/a2a/{path}"


async def call(url: str, method: str, params: Any, **more: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return await post(url, body, **more)


async def post(url: str, body: Any, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"a2a-version": "1.0", "content-type": "application/json", **headers}
    async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
        return await http.post(url, content=content, headers=sent)


async def get(url: str, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as http:
        return await http.get(url, headers=headers)


async def test_nothing_is_there_unless_it_is_switched_on() -> None:
    async with at_work() as browser:
        assert (await get(url_of(browser, f"echo/{CARD}"))).status_code == 404
        assert (await call(url_of(browser), "SendMessage", {"message": HI})).status_code == 404


@in_one_test("path", ["echo", f"echo/{CARD}", "echo/message:send"])
async def test_a_page_of_a_browser_may_not_ask(path: str) -> None:
    settings = {"serve_a2a": True}
    async with at_work(settings=settings) as browser:
        answer = await post(url_of(browser, path), {}, origin="https://evil.example")
    assert answer.status_code == 403


@in_one_test("path", ["echo", f"echo/{CARD}", CARD, "echo/tasks/x"])
async def test_unauthenticated_clients_learn_nothing(path: str) -> None:
    async with at_work(settings={"serve_a2a": True}, authenticate=by_token) as browser:
        assert (await get(url_of(browser, path))).status_code == 401
        assert (await post(url_of(browser, path), {})).status_code == 401


@in_one_test(
    ("method", "path", "status"),
    [
        ("GET", "nobody", 404),
        ("GET", f"nobody/{CARD}", 404),
        ("GET", CARD, 404),
        ("GET", "echo", 405),
        ("POST", f"echo/{CARD}", 405),
        ("GET", "echo/message:send", 405),
        ("GET", "echo/elsewhere", 404),
        ("GET", "echo/../adder", 404),
        ("POST", "echo/tenant/message:send", 404),
    ],
)
async def test_missing_agents_and_tasks_are_errors(method: str, path: str, status: int) -> None:
    async with at_work(settings={"serve_a2a": True}) as browser:
        answer = await browser.ask(method, f"/a2a/{path}", {} if method == "POST" else None)
    assert answer.status == status


async def test_a_card_has_the_url_of_the_request_or_of_the_settings() -> None:
    async with at_work(settings={"serve_a2a": True}) as browser:
        card = (await get(url_of(browser, f"echo/{CARD}"))).json()
        older = (await get(url_of(browser, "echo/.well-known/agent.json"))).json()
    assert {it["url"] for it in card["supportedInterfaces"]} == {url_of(browser)}
    assert card == older
    settings = {"serve_a2a": True, "a2a_url": "https://agents.example.com/graphql/"}
    async with at_work(settings=settings) as browser:
        card = (await get(url_of(browser, f"echo/{CARD}"))).json()
    assert card["url"] == "https://agents.example.com/graphql/a2a/echo"


@in_one_test(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"[]", -32600),
        (b"3", -32600),
        (b"[" * 5_000, -32700),
        (b"\xff\xfe", -32700),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "\xff"}}', -32700),
        ({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "\ud800"}}, -32001),
        ({"jsonrpc": "2.0", "id": "\udfff", "method": "GetTask", "params": {"id": "x"}}, -32001),
        ({"jsonrpc": "2.0", "id": 1, "method": "\ud800"}, -32601),
        ({}, -32600),
        ({"jsonrpc": "2.0", "id": {}, "method": "GetTask"}, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "Explode"}, -32601),
        ({"jsonrpc": "1.0", "id": 1, "method": "GetTask"}, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "SendMessage"}, -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": 3}}, -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": 3}, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {}}, -32600),
    ],
)
async def test_what_is_no_request_is_an_error_of_the_protocol(
    body: Any, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with at_work(settings={"serve_a2a": True}) as browser:
        answer = (await post(url_of(browser), body)).json()
    assert answer["error"]["code"] == code, answer
    assert "Traceback" not in str(answer)
    assert "Traceback" not in caplog.text, "it is a mistake of the caller, who may make many"


@in_one_test(
    "body",
    [b"", b"{", b"\xff\xfe", b'{"message": "\xff"}', b"[" * 5_000, b"3", b'{"message": 3}'],
)
@in_one_test(("path", "version"), [("", "1.0"), ("v1/", "0.3")])
async def test_a_body_that_is_no_message_is_a_mistake_of_the_caller(
    path: str, version: str, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with at_work(settings={"serve_a2a": True}) as browser:
        for method in ("send", "stream"):
            url = url_of(browser, f"echo/{path}message:{method}")
            answer = await post(url, body, **{"a2a-version": version})
            assert answer.status_code == 400, answer.text
    assert "Traceback" not in caplog.text


async def test_clients_of_0_3_get_an_error_for_a_lone_surrogate_in_a_task_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "\ud800"}}
    async with at_work(settings={"serve_a2a": True}) as browser:
        answer = await post(url_of(browser), body, **{"a2a-version": "0.3"})
    assert answer.json()["error"]["code"] == -32001
    assert "Traceback" not in caplog.text


@in_one_test("path", ["", "v1/"])
async def test_half_a_character_is_no_reason_to_refuse_a_text(path: str) -> None:
    older = {"role": "ROLE_USER", "content": [{"text": "Hi \ud83d"}], "messageId": "1"}
    newer = {**HI, "parts": [{"text": "Hi \ud83d"}]}
    async with at_work(settings={"serve_a2a": True}) as browser:
        for method in ("send", "stream"):
            body = {"message": older if path else newer}
            version = "0.3" if path else "1.0"
            url = url_of(browser, f"echo/{path}message:{method}")
            answer = await post(url, body, **{"a2a-version": version})
            assert "Hi \ufffd" in answer.text, answer.text


@in_one_test(
    ("params", "code"),
    [
        ({"message": {**HI, "parts": []}}, -32602),
        ({"message": {**HI, "parts": [{"text": ""}]}}, -32602),
        ({"message": {**HI, "parts": [{"raw": "%%%"}]}}, -32602),
        ({"message": {**HI, "contextId": "x" * 501}}, -32602),
        ({"message": {**HI, "contextId": "a\nb"}}, -32602),
        ({"message": {**HI, "contextId": ".."}}, -32602),
        ({"message": {**HI, "taskId": "gone"}}, -32001),
        ({"message": {**HI, "taskId": "A" * 10_000}}, -32602),
        ({"message": {**HI, "parts": [{"text": "x"}] * 5_001}}, -32602),
    ],
)
async def test_a_message_that_is_none_begins_no_task(params: Any, code: int) -> None:
    async with at_work(settings={"serve_a2a": True}) as browser:
        for method in ("SendMessage", "SendStreamingMessage"):
            answer = (await call(url_of(browser), method, params)).json()
            assert answer["error"]["code"] == code, answer


async def test_a_body_that_is_too_large_is_refused_before_it_is_read() -> None:
    settings = {"serve_a2a": True, "max_body_bytes": 1_000}
    async with at_work(settings=settings) as browser:
        answer = await call(url_of(browser), "SendMessage", {"message": {**HI, "x": "y" * 2_000}})
    assert answer.status_code == 413


@in_one_test(("most", "count"), [(100, 200), (250_000, 60_000)])
async def test_a_body_of_too_many_values_is_refused(most: int, count: int) -> None:
    settings = {"serve_a2a": True, "max_values": most}
    async with at_work(settings=settings) as browser:
        params = {"message": HI, "x": [1] * count}
        answer = await call(url_of(browser), "SendMessage", params)
    assert answer.status_code == 413


@in_one_test("id", ["", "x", "%00", "é", "AAAA", "../../x", "A" * 2_000])
async def test_an_id_of_no_task_is_not_found(id: str) -> None:
    async with at_work(settings={"serve_a2a": True}) as browser:
        for method in ("GetTask", "CancelTask", "SubscribeToTask"):
            answer = (await call(url_of(browser), method, {"id": id})).json()
            assert answer["error"]["code"] in (-32001, -32602), answer


async def test_notifications_to_other_servers_are_not_sent() -> None:
    async with at_a2a() as asker:
        task = await asker.ask("Hi")
        config = {"taskId": task.id, "id": "n", "url": "http://169.254.169.254/"}
        answer = await call(asker.url, "CreateTaskPushNotificationConfig", config)
    assert answer.json()["error"]["code"] == -32003


async def test_an_agent_may_have_any_name() -> None:
    name = "späh/er agent"

    async def answer(run: Any) -> str:
        return "Here."

    async with at_work(settings={"serve_a2a": True}, agents={name: answer}) as browser:
        from urllib.parse import quote

        async with asking(browser, quote(name, safe="")) as asker:
            assert (await asker.ask()).artifacts[0].parts[0].text == "Here."


@in_one_test("thread", ["t", "a/b", "späh", "x" * 500])
def test_an_id_of_a_task_says_its_thread(thread: str) -> None:
    key = TaskKey(thread, derive_id("echo", "m-1"))
    assert parse_task_id(key.task_id) == key


@in_one_test("id", ["", "A", "AAAA", "é", "____________________________"])
def test_what_is_no_id_of_a_task_says_nothing(id: str) -> None:
    assert parse_task_id(id) is None
