"""The hook that says whose a request is, and what becomes of what it returns or raises."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.api import Caller
from copilot_runtime.base.errors import AuthenticationFailed, LimitExceeded
from copilot_runtime.transports.auth import Authenticator, Unauthorized
from copilot_runtime.transports.request import Request
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


async def receive() -> Any:
    raise AssertionError("nobody reads the body")


async def send(message: Any) -> None:
    raise AssertionError("nobody answers")


def asked(hook: Callable[[HTTPConnection], Any] | None, **headers: str) -> Awaitable[Caller]:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "path": "/", "query_string": b"", "headers": raw, "state": {}}
    request = Request(scope, receive, send)
    return Authenticator(hook, forwards={"authorization"}.__contains__).authenticate(request)


async def test_without_a_hook_everybody_is_nobody() -> None:
    assert await asked(None, authorization="a", cookie="c") == Caller(
        user=None, headers={"authorization": "a"}
    )


async def test_a_hook_may_be_a_function_or_a_coroutine() -> None:
    async def later(connection: HTTPConnection) -> str:
        return connection.headers["authorization"]

    def at_once(connection: HTTPConnection) -> str:
        return connection.headers["authorization"]

    assert (await asked(later, authorization="ada")).user == "ada"
    assert (await asked(at_once, authorization="ada")).user == "ada"
    assert (await asked(lambda _: None)).user is None


@in_one_test("user", ["", 5, b"ada", True, ["ada"]])
async def test_a_user_that_is_no_text_lets_nobody_in(user: Any) -> None:
    with pytest.raises(Unauthorized) as refused:
        await asked(lambda _: user)

    assert refused.value.status == 500
    assert "ada" not in refused.value.message


@in_one_test(
    ("user", "why"), [("x" * 501, "longer than 500"), ("a\nb", "control"), ("\ud83d", "no text")]
)
async def test_a_user_to_whom_no_thread_could_belong_is_a_mistake_of_the_hook(
    user: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Unauthorized) as refused:
        await asked(lambda _: user)

    assert refused.value.status == 500
    assert "The authenticate hook returned " in caplog.text
    assert why in caplog.text


@in_one_test(
    ("status", "kind"),
    [(401, "unauthorized"), (403, "forbidden"), (429, "refused"), (500, "internal_error")],
)
def test_a_refusal_is_called_what_it_is(status: int, kind: str) -> None:
    def refuse(connection: HTTPConnection) -> str:
        raise HTTPException(status, "No.")

    runtime = CopilotRuntime(authenticate=refuse, settings=Settings(threads="memory"))
    answer = TestClient(runtime.app("/copilotkit")).get("/copilotkit/info")

    assert (answer.status_code, answer.json()["error"]) == (status, kind)
    assert answer.json()["message"] == "No."


@in_one_test(
    ("error", "status", "message"),
    [
        (AuthenticationFailed("Who are you?"), 401, "Who are you?"),
        (LimitExceeded("Not so fast.", status_code=429), 429, "Not so fast."),
        (HTTPException(403, "Not you."), 403, "Not you."),
        (HTTPException(401), 401, "Unauthorized"),
        (HTTPException(403, cast("Any", {"code": 7})), 403, "Forbidden"),
        (HTTPException(409, cast("Any", {"message": "Taken."})), 409, "Taken."),
        (HTTPException(403, cast("Any", ["no"])), 403, "Forbidden"),
        (HTTPException(499, cast("Any", {})), 499, "The request was refused."),
    ],
)
async def test_what_a_hook_says_is_what_the_client_hears(
    error: Exception, status: int, message: str
) -> None:
    def refuse(connection: HTTPConnection) -> str:
        raise error

    with pytest.raises(Unauthorized) as refused:
        await asked(refuse)

    assert (refused.value.status, refused.value.message) == (status, message)


async def test_the_mistakes_of_a_hook_let_nobody_in_and_tell_nothing() -> None:
    def refuse(connection: HTTPConnection) -> str:
        raise KeyError("a secret")

    with pytest.raises(Unauthorized) as refused:
        await asked(refuse)

    assert refused.value.status == 500
    assert "secret" not in refused.value.message
