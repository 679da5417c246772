"""What fails is told to whoever asked, in a sentence, and stays with whoever asked."""

import asyncio
import gc
from collections.abc import Sequence
from typing import Any

import pytest

from copilot_runtime import ChatRequest, Events, RunInput, Settings, action
from copilot_runtime.adapters.scripted import Gate, call, say
from copilot_runtime.api import Caller
from copilot_runtime.api.events import TextMessageContent, TextMessageStart
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.api.messages import Message
from copilot_runtime.base.errors import AuthenticationFailed, NetworkError, Refused, StoreFailed
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.store import Segment, StoredRun, ThreadKey, ThreadPage, ThreadQuery
from tests.in_one_test import in_one_test
from tests.runs import Says, forever
from tests.threads.recorded import Store
from tests.wire_agui.http import Answer, Browser, run_input, text_of
from tests.wire_agui.server import Parrot, browsing

pytestmark = pytest.mark.anyio

MASKED = "The run failed"
HALF = [TextMessageStart(message_id="m"), TextMessageContent(message_id="m", content="Half")]


def error_of(answer: Answer) -> dict[str, Any]:
    """Return the error a stream ends with."""
    last = answer.events()[-1]
    assert last["type"] == "RUN_ERROR", last
    return last


async def alive(browser: Browser) -> bool:
    return (await browser.run(thread="after")).types()[-1] == "RUN_FINISHED"


@in_one_test("half", [False, True])
@in_one_test(
    ("error", "message"),
    [
        (NetworkError("The model is away."), "The model is away."),
        (RuntimeError("a secret"), MASKED),
        (KeyError("a secret"), MASKED),
    ],
)
async def test_an_agent_that_fails_ends_its_run_and_keeps_what_it_said(
    half: bool, error: Exception, message: str
) -> None:
    agents = {"bad": Says(*(HALF if half else []), error)}
    async with browsing(agents=agents) as browser:
        answer = await browser.run(agent="bad")
        replayed = await browser.connect(agent="bad")
        assert await alive(browser)

    assert error_of(answer)["message"].startswith(message)
    assert b"secret" not in answer.body + replayed.body
    assert text_of(answer.events()) == text_of(replayed.events()) == ("Half" if half else "")
    assert answer.types()[:1] == ["RUN_STARTED"]
    assert answer.types().count("TEXT_MESSAGE_END") == half


async def test_a_stage_may_refuse() -> None:
    async def refuse(events: Events, run: RunInput) -> Events:
        if run.thread_id == "t":
            raise Refused("Not that topic.")
        async for event in events:
            yield event

    async with browsing(stages=[refuse]) as browser:
        answer = await browser.run()
        assert await alive(browser)

    assert error_of(answer)["message"] == "Not that topic."


async def test_a_hook_that_raises_ends_only_its_run() -> None:
    def look(run: RunInput) -> None:
        if run.thread_id == "t":
            raise RuntimeError("a secret")

    async with browsing(hooks=Hooks(before_request=look)) as browser:
        answer = await browser.run()
        threads = (await browser.ask("GET", "/threads")).json()["threads"]
        assert await alive(browser)

    assert answer.types() == ["RUN_ERROR"]
    assert error_of(answer)["message"].startswith(MASKED)
    assert threads == []


async def test_a_hook_that_sends_away_answers_401() -> None:
    def look(run: RunInput) -> None:
        raise AuthenticationFailed("Who are you?")

    async with browsing(hooks=Hooks(before_request=look)) as browser:
        answer = await browser.run()

    assert (answer.status, answer.json()["message"]) == (401, "Who are you?")


@in_one_test("hook", ["after_request", "error", "stop"])
async def test_a_hook_that_only_listens_harms_nobody(hook: str) -> None:
    def listen(*told: Any) -> None:
        raise RuntimeError("a secret")

    given: dict[str, Any] = {hook: listen}
    agents = {"bad": Says(RuntimeError("bad")), "endless": Says(forever)}
    async with browsing(agents=agents, hooks=Hooks(**given)) as browser:
        async with browser.running(agent="endless", thread="stopped") as exchange:
            await exchange.next()
            await browser.stop("stopped")
            await exchange.rest()
        failed = await browser.run(agent="bad")
        assert await alive(browser)

    assert error_of(failed)["message"].startswith(MASKED)


@in_one_test(
    ("error", "status", "said"),
    [
        (RuntimeError("a secret"), 500, MASKED),
        (AuthenticationFailed("No tenant."), 401, "No tenant."),
    ],
)
async def test_a_factory_of_agents_that_fails_is_told_in_json(
    error: Exception, status: int, said: str
) -> None:
    def agents(caller: Caller) -> Any:
        raise error

    async with browsing(agents=agents) as browser:
        answers = [
            await browser.ask("GET", "/info"),
            await browser.envelope("info"),
            await browser.run(),
            await browser.connect(),
            await browser.ask("POST", "/agent/default/stop/t"),
        ]
        threads = await browser.ask("GET", "/threads")

    assert threads.status == 200
    for answer in answers:
        assert answer.status == status
        assert answer.json()["message"].startswith(said)
        assert b"secret" not in answer.body


async def test_a_factory_gives_each_caller_agents_of_their_own() -> None:
    def agents(caller: Caller) -> Any:
        return {f"{caller.headers.get('x-tenant', 'nobody')}-agent": Says(*say("Hello"))}

    async with browsing(agents=agents) as browser:
        seen = await browser.ask("GET", "/info", None, {"x-tenant": "acme"})
        acme = Browser(browser.where, headers={"x-tenant": "acme"})
        mine = await acme.run(agent="acme-agent")
        others = await acme.run(agent="nobody-agent")

    assert "acme-agent" in seen.json()["agents"]
    assert text_of(mine.events()) == "Hello"
    assert others.status == 404


async def test_a_run_too_many_is_asked_to_wait() -> None:
    gate, model = Gate(), Parrot()
    settings = Settings(threads="memory", max_concurrent_runs=1)
    async with browsing(model, settings=settings) as browser:
        model.gate = gate
        async with browser.running() as first:
            await first.next()
            refused = await browser.run(thread="other")
            model.gate = None
            gate.release(3)
            await first.until("RUN_FINISHED")
        assert await alive(browser)

    assert refused.types() == ["RUN_ERROR"]
    assert "try again in a moment" in error_of(refused)["message"]


async def test_a_run_that_takes_too_long_is_ended() -> None:
    settings = Settings(threads="memory", run_timeout=1.5)
    agents = {"endless": Says(*HALF, forever)}
    async with browsing(agents=agents, settings=settings) as browser:
        answer = await browser.run(agent="endless")
        assert await alive(browser)

    assert error_of(answer)["message"] == "The answer took longer than 1.5 seconds."
    assert text_of(answer.events()) == "Half"


class Broken(MemoryThreads):
    """Threads that cannot be kept or read, in one way, while `broken` says so."""

    def __init__(self, way: str, error: Exception) -> None:
        super().__init__()
        self.way = way
        self.error = error
        self.broken = True

    def raise_in(self, way: str) -> None:
        if self.broken and self.way == way:
            raise self.error

    async def begin(self, run: RunInput) -> Sequence[Message]:
        self.raise_in("begin")
        return await super().begin(run)

    async def write(self, segments: Sequence[Segment]) -> None:
        self.raise_in("write")
        await super().write(segments)

    async def list(self, query: ThreadQuery) -> ThreadPage:
        self.raise_in("list")
        return await super().list(query)

    async def runs(self, key: ThreadKey) -> Sequence[StoredRun]:
        self.raise_in("runs")
        return await super().runs(key)

    async def update(self, key: ThreadKey, **changes: Any) -> Any:
        self.raise_in("update")
        return await super().update(key, **changes)

    async def delete(self, key: ThreadKey) -> bool:
        self.raise_in("delete")
        return await super().delete(key)


DOWN = StoreFailed("Threads cannot be kept at the moment.")
WEIRD = RuntimeError("a secret")


class PayingModel:
    """Calls `pay` once; the store writes nothing more when it is asked."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.has_called = False

    async def stream(self, request: ChatRequest) -> Events:
        if self.has_called:
            return
        self.has_called = True
        self.store.hold()
        for event in call("pay", {}, id="call-1"):
            yield event


@in_one_test("failure", [None, DOWN], ids=["stored", "not-stored"])
async def test_an_action_is_done_only_when_its_call_is_stored(failure: Exception | None) -> None:
    payments: list[str] = []

    @action
    async def pay() -> str:
        """Pay."""
        payments.append("paid")
        return "paid"

    store = Store()
    async with (
        browsing(PayingModel(store), threads=store, actions=[pay]) as browser,
        browser.running() as exchange,
    ):
        await exchange.until("RUN_STARTED")
        await store.asked.wait()
        await browser.ask("GET", "/info")
        before = [*payments]
        store.failure = failure
        store.free.set()
        await exchange.rest()

    assert before == []
    assert payments == (["paid"] if failure is None else [])


@in_one_test("error", [DOWN, WEIRD], ids=["down", "weird"])
@in_one_test("way", ["begin", "write"])
async def test_a_run_that_cannot_be_kept_ends_with_an_error(way: str, error: Exception) -> None:
    store = Broken(way, error)
    async with browsing(threads=store) as browser:
        answer = await browser.run()
        store.broken = False
        again = await browser.run(run="again")
        assert await alive(browser)

    assert error_of(answer)["message"]
    assert b"secret" not in answer.body
    assert again.types()[-1] == "RUN_FINISHED"


@in_one_test("error", [DOWN, WEIRD], ids=["down", "weird"])
async def test_a_store_that_fails_in_the_middle_ends_the_run_with_what_was_kept(
    error: Exception,
) -> None:
    store, gate = Broken("write", error), Gate()
    store.broken = False
    async with browsing(Parrot("one ", "two ", gate=gate), threads=store) as browser:
        async with browser.running() as exchange:
            gate.release(2)
            await exchange.until("TEXT_MESSAGE_CONTENT")
            store.broken = True
            gate.release(2)
            events = await exchange.rest()
        store.broken = False
        kept = (await browser.connect()).events()
        gate.release(10)
        again = await browser.run(run="again")
        replayed = (await browser.connect()).events()

    assert events[-1]["type"] == "RUN_ERROR"
    assert text_of(events) == text_of(kept) == "one "
    assert again.types()[-1] == "RUN_FINISHED"
    assert text_of(replayed) == "one two "  # in place of the answer that broke off


@in_one_test("error", [DOWN, WEIRD], ids=["down", "weird"])
@in_one_test(
    ("way", "method", "path"),
    [
        ("list", "GET", "/threads"),
        ("runs", "GET", "/threads/t/messages"),
        ("runs", "GET", "/threads/t/events"),
        ("runs", "GET", "/threads/t/state"),
        ("runs", "POST", "/agent/default/connect"),
        ("update", "PATCH", "/threads/t"),
        ("update", "POST", "/threads/t/archive"),
        ("delete", "DELETE", "/threads/t"),
    ],
)
async def test_a_store_that_cannot_answer_is_told_in_json(
    way: str, method: str, path: str, error: Exception
) -> None:
    body = run_input(name="Name") if method in ("POST", "PATCH") else None
    async with browsing(threads=Broken(way, error)) as browser:
        answer = await browser.ask(method, path, body)
        assert await alive(browser)

    assert answer.status == (503 if error is DOWN else 500)
    assert answer.json()["message"].startswith(DOWN.message if error is DOWN else MASKED)
    assert b"secret" not in answer.body


async def test_a_client_that_leaves_before_its_run_has_begun_leaves_no_noise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    looking, go_on, told = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def look(run: RunInput) -> None:
        if run.thread_id == "t":
            looking.set()
            await go_on.wait()
            raise Refused("No.")

    def tell(error: BaseException, context: Any) -> None:
        told.set()

    async with browsing(
        hooks=Hooks(before_request=look, error=tell),
    ) as browser:
        asking = asyncio.create_task(browser.run())
        await looking.wait()
        asking.cancel()
        go_on.set()
        assert await alive(browser)

    assert "never retrieved" not in caplog.text


async def test_a_request_that_was_refused_does_not_stay_in_memory() -> None:
    click = {"userAction": {"name": "n", "context": {"key": "y" * 200_000}}}
    body = {**run_input(thread="refused"), "forwardedProps": {"a2uiAction": click}}
    async with browsing(a2ui=True) as browser:
        await browser.run(thread="before")
        gc.disable()
        try:
            error_of(await browser.ask("POST", "/agent/default/run", body))
            left = [it for it in gc.get_objects() if isinstance(it, RunInput)]
        finally:
            gc.enable()

    assert [it for it in left if it.thread_id == "refused"] == []
