"""What runs did, in Chromium: the page *Traces*, live and afterwards."""

import json
import re
from itertools import pairwise
from time import time_ns

import pytest
from playwright.async_api import Browser, Page, Route, expect
from starlette.requests import HTTPConnection

from copilot_runtime import CopilotRuntime, DemoAdapter, RunInput, ScriptedAdapter, Settings, action
from copilot_runtime.adapters.pricing import load_prices
from copilot_runtime.adapters.scripted import Gate
from copilot_runtime.api import ChatRequest, ModelEndpoint
from copilot_runtime.api.events import Event, Events, Usage
from copilot_runtime.extensions.tracing.store import MemoryTraceStore, decode_span
from copilot_runtime.telemetry import LocalTelemetry, genai, semconv
from copilot_runtime.testing import call, say
from tests.browser.build import keep_picture
from tests.browser.console import answer, opened, served
from tests.browser.console import say as ask
from tests.extensions.tracing.http.spans import agent, chat, tool, trip

pytestmark = pytest.mark.anyio


@action
def get_time(zone: str) -> str:
    """Say what time it is."""
    return f"Noon in {zone}."


@action
def break_down() -> str:
    raise TimeoutError("The clock is broken.")


def weather(run: RunInput) -> str:
    """Knows the weather of cities."""
    del run
    return "Rain in Oslo."


class CountingAdapter(ScriptedAdapter):
    """Plays its turns as a model whose tokens are counted, and whose prices are known."""

    def __init__(self, *turns: list[Event], model: str = "gpt-4o") -> None:
        super().__init__(*turns)
        self._model = model

    async def stream(self, request: ChatRequest) -> Events:
        async for event in super().stream(request):
            yield event
        read = 840 + 130 * len(request.messages)
        yield Usage(model=self._model, provider="openai", input_tokens=read, output_tokens=42)

    def endpoint(self, request: ChatRequest) -> ModelEndpoint:
        del request
        return ModelEndpoint("openai", self._model)


def a_runtime(*turns: object, **more: object) -> CopilotRuntime:
    telemetry = LocalTelemetry(MemoryTraceStore(), keeps_content=True)
    more = {"telemetry": telemetry, **more}
    return CopilotRuntime(
        ScriptedAdapter(*turns, gate=more.pop("gate", None)),  # pyright: ignore[reportArgumentType]
        actions=[get_time, break_down],
        settings=Settings(threads="memory"),
        **more,  # pyright: ignore[reportArgumentType]
    )


def store_of(runtime: CopilotRuntime) -> MemoryTraceStore:
    store = getattr(runtime.telemetry, "store", None)
    assert isinstance(store, MemoryTraceStore)
    return store


async def open_traces(page: Page, url: str) -> None:
    await page.goto(f"{url}traces")
    await page.locator("#list button").first.click()
    await expect(page.locator(".row").first).to_be_visible()


async def test_a_run_is_a_waterfall_with_what_each_step_was_told(
    browser: Browser,
) -> None:
    problems: list[str] = []
    turns = [
        call("get_time", {"zone": "Oslo"}),
        call("break_down", {}),
        call("weather", {"question": "Is it raining in Oslo?"}),
    ]
    await load_prices()
    runtime = CopilotRuntime(
        CountingAdapter(*turns),
        actions=[get_time, break_down],
        agents={"weather": weather},
        telemetry=LocalTelemetry(MemoryTraceStore(), keeps_content=True),
        settings=Settings(threads="memory", hand_over="always"),
    )
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        await page.goto(url)
        await ask(page, "What time is it in Oslo, and is it raining?")
        await expect(answer(page)).to_contain_text("Rain in Oslo.")
        await page.get_by_role("link", name="Traces").click()

        await page.locator("#list button", has_text="What time is it in Oslo").first.click()
        rows = page.locator(".row .name span")
        await expect(rows.first).to_have_text("invoke_agent default")
        names = await rows.all_inner_texts()
        assert "invoke_agent weather" in names
        await expect(page.locator("#facts")).to_contain_text(re.compile(r"cost\s*\$0\.0\d"))
        assert "execute_tool get_time" in names
        await expect(page.locator(".bar.failed em")).to_contain_text("TimeoutError")
        await page.get_by_role("treeitem").filter(has_text="get_time").click()
        await expect(page.locator("#span-content")).to_contain_text("Oslo")
        await expect(page.locator("#span-content")).to_contain_text("Noon in Oslo.")
        await keep_picture(page, "traces")
        await page.get_by_role("tab", name="Flow").click()
        await expect(page.locator("#flow-box svg")).to_contain_text("get_time")
    assert problems == []


async def test_a_run_is_seen_while_it_goes_on(browser: Browser) -> None:
    gate = Gate()
    async with served(a_runtime(say("Slowly."), gate=gate)) as url, opened(browser) as context:
        chat, page = await context.new_page(), await context.new_page()
        await page.goto(f"{url}traces")
        await expect(page.locator("#nothing")).to_be_visible()
        await chat.goto(url)
        await ask(chat, "Go on.")

        running = page.locator("#list .open", has_text="goes on")
        await running.click()
        await expect(page.locator(".bar.open").first).to_be_visible()
        gate.release(100)
        await expect(page.locator("#facts")).to_contain_text("finished")
        await expect(page.locator(".bar.open")).to_have_count(0)


async def test_a_run_that_goes_on_has_its_own_name_and_not_that_of_a_step_that_is_over(
    browser: Browser,
) -> None:
    gate = Gate()
    runtime = a_runtime(call("get_time", {"zone": "Oslo"}), say("Noon."), gate=gate)
    async with served(runtime) as url, opened(browser) as context:
        chat, page = await context.new_page(), await context.new_page()
        await page.goto(f"{url}traces")
        await expect(page.locator("#nothing")).to_be_visible()
        await chat.goto(url)
        await ask(chat, "What time is it?")
        await page.locator("#list .open").click()
        gate.release(3)
        await expect(page.locator(".row", has_text="get_time")).to_be_visible()
        await page.get_by_label("with errors").check()
        await expect(page.locator("#nothing")).to_be_visible()
        await page.get_by_label("with errors").uncheck()

        await expect(page.locator("#list li")).to_have_count(1)
        row = await page.locator("#list li").inner_text()
        gate.release(100)
        await expect(page.locator("#list b")).to_have_text(["What time is it?"])
    assert "invoke_agent default" in row
    assert "goes on" in row


async def test_two_runs_are_compared_step_by_step(browser: Browser) -> None:
    turns = [say("Noon."), call("get_time", {"zone": "Oslo"}), say("Noon.")]
    async with served(a_runtime(*turns)) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(url)
        for question in ("First?", "Second?"):
            await ask(page, question)
            await expect(answer(page)).to_contain_text("Noon.")
        await page.goto(f"{url}traces")
        items = page.locator("#list button")
        await expect(items).to_have_count(2)
        await items.nth(1).click()
        await page.get_by_role("button", name="Compare").click()
        await items.nth(0).click()

        row = page.locator("#difference-box tr").filter(has_text="execute_tool get_time")
        await expect(row).to_contain_text("new")


async def test_a_trace_of_2000_spans_has_few_rows_and_is_searched(browser: Browser) -> None:
    runtime = a_runtime()
    now = time_ns()
    run = genai.start_run_span(
        runtime.telemetry, agent="crowd", thread_id="t", run_id="r", protocol="agui"
    )
    for number in range(2000):
        name = "rare" if number == 1999 else "common"
        tool = genai.start_tool_span(run, f"{name}_{number}")
        tool.set_attributes({semconv.TOOL_TYPE: "function"})
        tool.start_time = now + number * 1_000_000
        tool.end(tool.start_time + 5_000_000)
    run.end(now + 3_000_000_000)
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        await open_traces(page, url)
        assert await page.locator(".row").count() < 100
        await page.get_by_placeholder("Find a span").fill("rare_")

        await expect(page.locator("#matches")).to_have_text("1 of 2,001")
        await expect(page.get_by_role("treeitem").filter(has_text="rare_1999")).to_be_visible()


async def test_an_answer_leads_to_its_trace_and_is_rated(browser: Browser) -> None:
    runtime = a_runtime(say("First."), call("break_down", {}), say("Second."))
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(url)
        for question, words in (("One?", "First."), ("Two?", "Second.")):
            await ask(page, question)
            await expect(answer(page)).to_contain_text(words)
        first = page.locator(".run").first
        await first.get_by_role("button", name="Bad answer").click()
        await expect(first.get_by_role("button", name="Bad answer", pressed=True)).to_be_visible()
        await expect(first.get_by_role("button", name="Good answer", pressed=True)).to_have_count(0)
        await page.reload()  # the thread is shown as it is stored
        await expect(page.locator(".run")).to_have_count(2)
        await expect(page.get_by_role("button", name="Bad answer", pressed=True)).to_have_count(1)
        await page.get_by_role("link", name="Trace", exact=True).last.click()
        await expect(page.locator(".bar.failed em")).to_contain_text("TimeoutError")
        await page.go_back()
        await page.get_by_role("link", name="Trace", exact=True).first.click()

        await expect(page.locator("#facts")).to_contain_text("thumbs down")
        await expect(page).to_have_url(re.compile("#[0-9a-f]{32}$"))


async def test_a_plan_leads_to_the_one_trace_that_has_its_work(browser: Browser) -> None:
    planner = {"name": "planner", "store": "memory", "needs_approval": True}
    runtime = CopilotRuntime(
        DemoAdapter(pace=0),
        telemetry=LocalTelemetry(MemoryTraceStore()),
        settings=Settings.model_validate({"threads": "memory", "planner": planner}),
    )
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(url)
        await page.get_by_label("Agent", exact=True).select_option("planner")
        await ask(page, "Create plan")
        await expect(page.get_by_role("button", name="Ask again")).to_be_visible()
        good = page.get_by_role("button", name="Good answer")
        await expect(good).to_have_count(0)  # there is no answer yet
        await page.get_by_role("button", name="Approve").first.click()
        await expect(page.locator(".card").first).to_contain_text("1 of 1 tasks")
        await expect(good).to_be_visible()
        await expect(page.locator(".run a")).to_have_text(["Trace"])
        await page.locator(".run a").click()

        await expect(page.locator(".row", has_text="invoke_agent")).not_to_have_count(1)
        await expect(page.locator("#facts")).to_contain_text("asked a question")


async def test_an_answer_of_long_ago_has_no_trace_any_more(browser: Browser) -> None:
    async with served(a_runtime()) as url, opened(browser) as context:
        page = await context.new_page()
        errors: list[str] = []
        page.on("console", lambda it: errors.append(it.text) if "<svg>" in it.text else None)
        await page.goto(f"{url}traces#run=none")
        await expect(page.get_by_role("alert")).to_contain_text("there is none any more")
        async with page.expect_response(re.compile("/stats.*nowhere")):
            await page.get_by_label("Find", exact=True).fill("nowhere")
        await page.goto(f"{url}traces#0000")
        await expect(page.get_by_role("alert")).to_contain_text("There is no such trace.")
        await expect(page.locator("#missing")).to_be_visible()
        assert errors == []


async def test_where_no_traces_are_kept_answers_have_none(browser: Browser) -> None:
    runtime = a_runtime(say("Hello."), telemetry=LocalTelemetry())
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(url)
        await ask(page, "Hello?")
        await expect(answer(page)).to_contain_text("Hello.")
        await expect(page.get_by_role("button", name="Ask again")).to_be_visible()
        await expect(page.get_by_role("button", name="Good answer")).to_have_count(0)
        await expect(page.get_by_role("link", name="Trace", exact=True)).to_have_count(0)


def authenticate(connection: HTTPConnection) -> str:
    return connection.headers.get("authorization", "nobody")


async def test_what_other_programs_write_is_shown_as_it_is(browser: Browser) -> None:
    markup = "<img src=x onerror=alert(1)>"
    chat = {semconv.OPERATION_NAME: semconv.CHAT, semconv.USAGE_INPUT_TOKENS: "12"}
    content = {
        semconv.INPUT_MESSAGES: '[{"role": "user", "parts": [{"type": "text", "content": "Cut o',
        semconv.OUTPUT_MESSAGES: [None, {"role": "assistant", "parts": "none"}, markup],
    }
    spans = [
        {"span_id": "1", "parent_span_id": "3", "name": "N" * 10_000, "attributes": chat},
        {"span_id": "2", "parent_span_id": "1", "name": markup, "content": content},
        {"span_id": "3", "parent_span_id": "2", "name": "circle"},
        {"span_id": "4", "parent_span_id": "gone", "name": "ends first", "end_time_unix_nano": 1},
    ]
    runtime, started = a_runtime(), time_ns()
    for span in spans:
        times = {"start_time_unix_nano": started, "end_time_unix_nano": started + 123_456_789}
        store_of(runtime).add(decode_span({"trace_id": "a" * 32, **times, **span}))
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        await open_traces(page, url)
        await expect(page.get_by_role("treeitem")).to_have_count(4)
        await expect(page.locator("#facts")).to_contain_text("12 in, 0 out")
        await page.get_by_role("treeitem").filter(has_text=markup).click()
        await expect(page.locator("#span-content")).to_contain_text("Cut o")
        await expect(page.locator("#span-content")).to_contain_text(markup)
        await page.get_by_role("treeitem").filter(has_text="ends first").click()
        await expect(page.locator("#span-content tr", has_text="took")).to_contain_text("0 µs")
        async with page.expect_download() as download:
            await page.get_by_role("button", name="Download").click()
        content = json.loads((await (await download.value).path()).read_text("utf-8"))
    found = {span["span_id"]: span for span in content["spans"]}
    assert found["1"]["start_time_unix_nano"] == started  # to the nanosecond


async def test_on_a_phone_there_is_one_thing_at_a_time_and_none_is_too_wide(
    browser: Browser,
) -> None:
    runtime = a_runtime(call("get_time", {"zone": "Oslo"}), say("Noon."))
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        await page.set_viewport_size({"width": 390, "height": 844})
        await page.goto(url)
        await ask(page, "What time is it?")
        await expect(answer(page)).to_contain_text("Noon.")
        await page.goto(f"{url}traces")
        await page.locator("#list button").first.click()
        await expect(page.locator("#list")).to_be_hidden()
        await page.get_by_role("treeitem").filter(has_text="get_time").click()
        await expect(page.locator("#span-content")).to_contain_text("Oslo")
        await keep_picture(page, "traces_on_a_phone")
        width = await page.evaluate("document.documentElement.scrollWidth")
        await page.locator("#trace .back").click()
        await expect(page.locator("#list")).to_be_visible()
    assert width == 390


async def test_a_stream_that_is_refused_is_not_asked_for_again(browser: Browser) -> None:
    async with served(a_runtime()) as url, opened(browser) as context:
        page = await context.new_page()
        asked: list[str] = []

        async def refuse(route: Route) -> None:
            asked.append(route.request.url)
            await route.fulfill(status=403, json={"message": "Traces are for operators."})

        await page.clock.install()
        await page.route("**/traces/stream", refuse)
        await page.goto(f"{url}traces")
        await expect(page.locator("#problem")).to_contain_text("operators")
        await page.clock.run_for(30_000)
    assert len(asked) == 1


async def test_what_ended_while_the_stream_was_broken_does_not_go_on_for_ever(
    browser: Browser,
) -> None:
    async with served(a_runtime()) as url, opened(browser) as context:
        page = await context.new_page()
        times = {"start_time_unix_nano": time_ns(), "end_time_unix_nano": 0}
        record = {"trace_id": "a" * 32, "span_id": "1", "name": "lost", **times}
        start = f"event: span_start\ndata: {json.dumps(record)}\n\n"
        answers = [start]

        async def break_off(route: Route) -> None:
            if answers:
                await route.fulfill(content_type="text/event-stream", body=answers.pop())
            else:
                await route.continue_()

        await page.clock.install()
        await page.route("**/traces/stream", break_off)
        await page.goto(f"{url}traces")
        await page.clock.run_for(1_000)
        await expect(page.locator("#list .open")).to_contain_text("goes on")
        async with page.expect_response("**/traces/stream"):
            await page.clock.run_for(3_000)
        await page.clock.run_for(1_000)
        await expect(page.locator("#list li")).to_have_count(0)


async def test_a_comparison_is_taken_back(browser: Browser) -> None:
    async with served(a_runtime(say("Noon."))) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(url)
        await ask(page, "What time is it?")
        await expect(answer(page)).to_contain_text("Noon.")
        await open_traces(page, f"{url}")
        compare = page.get_by_role("button", name="Compare")
        await compare.click()
        await expect(page.locator("#status")).to_contain_text("Choose the trace")
        await compare.click()

        await expect(page.locator("#list .chosen")).to_have_count(0)
        await expect(page.locator("#status")).to_have_text("")


async def test_a_user_who_is_no_operator_rates_answers_and_sees_no_link(browser: Browser) -> None:
    runtime = a_runtime(say("Hello."), authenticate=authenticate)
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(url)
        await ask(page, "Hello?")
        await page.get_by_role("button", name="Good answer").click()

        await expect(page.get_by_role("button", name="Good answer", pressed=True)).to_be_visible()
        await expect(page.get_by_role("link", name="Trace", exact=True)).to_have_count(0)
        await expect(page.get_by_role("link", name="Traces")).to_have_count(0)


async def test_a_rating_that_is_not_taken_is_told(browser: Browser) -> None:
    async with served(a_runtime(say("Hello."))) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(url)
        await ask(page, "Hello?")
        await page.route("**/traces/feedback", lambda route: route.abort())
        await page.get_by_role("button", name="Good answer").click()

        await expect(page.locator(".run")).to_contain_text("That could not be noted.")


async def test_a_user_who_is_no_operator_sees_no_trace(browser: Browser) -> None:
    runtime = a_runtime(say("Hello."), authenticate=authenticate)
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(url)
        await ask(page, "Hello?")
        await expect(answer(page)).to_contain_text("Hello.")
        await page.goto(f"{url}traces")

        await expect(page.locator("#problem")).to_contain_text("telemetry.operators")
        await expect(page.locator("#problem").get_by_role("button")).to_have_count(0)
        await expect(page.locator("#list li")).to_have_count(0)
        for control in ("#filters", "#to-costs", "#scenarios"):
            await expect(page.locator(control)).to_be_hidden()


async def rated_trip(runtime: CopilotRuntime) -> None:
    """Keep a run that was rated, and another one that was not."""
    price = {"COST_DOLLARS": 0.003}
    answer = {semconv.OUTPUT_MESSAGES: [{"role": "assistant", "parts": []}]}
    records = [
        *trip("a" * 32, FEEDBACK_RATING="down"),
        agent("planner", id="1", trace="b" * 32, seconds=4),
        chat("gpt-4o", 1, 1, id="2", parent="1", trace="b" * 32, content=answer, **price),
        chat("gpt-5", 1, 1, id="6", parent="1", trace="b" * 32),
        tool("find_flights", id="3", parent="1", trace="b" * 32, start=1),
        agent("writer", id="4", parent="3", trace="b" * 32, start=1),
        chat("gpt-4o", 1, 1, id="5", parent="4", trace="b" * 32, start=2, **price),
    ]
    for record in records:
        store_of(runtime).add(decode_span(record))


async def test_a_complaint_is_found_by_its_rating(browser: Browser) -> None:
    runtime = a_runtime()
    await rated_trip(runtime)
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(f"{url}traces")
        items = page.locator("#list button")
        await expect(items).to_have_count(2)
        await expect(items.filter(has_text="$0.0060+")).to_have_count(1)  # one without a price
        rated = items.filter(has_text="thumbs down")
        await expect(rated.filter(has_text="$0.0050")).to_have_count(1)
        await page.get_by_label("rated").select_option("down")
        await expect(items).to_have_count(1)
        await page.get_by_label("rated").select_option("up")
        await expect(page.locator("#nothing")).to_have_text("Nothing was found.")
        await page.get_by_label("rated").select_option("")
        await page.get_by_role("searchbox", name="Find").first.fill("aaaaaaaa")
        await expect(items).to_have_count(1)


async def test_costs_are_counted_by_user_and_model_which_choose_their_traces(
    browser: Browser,
) -> None:
    runtime = a_runtime()
    question = {semconv.INPUT_MESSAGES: [{"role": "user", "parts": [{"content": "To Rome?"}]}]}
    records = [
        *trip("a" * 32, USER_NAME="ann", content=question),
        agent("planner", id="1", trace="b" * 32, start=7200, USER_NAME="bob"),
        chat("gpt-5", 10, 1, id="2", parent="1", trace="b" * 32, start=7200, COST_DOLLARS=2.5),
    ]
    for record in records:
        store_of(runtime).add(decode_span(record))
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(f"{url}traces")
        totals = page.locator("#totals")
        await expect(totals).to_have_text("2 traces · 1 with errors · 2,611 tokens · $2.50")
        await expect(page.get_by_role("img", name="Traces by hour, at most 1")).to_be_visible()
        groups = page.locator("#groups section")
        await expect(groups.nth(0).locator("tbody tr")).to_contain_text(["ann", "bob"])
        await expect(groups.nth(1)).to_contain_text("$0.0050")
        await groups.nth(1).get_by_role("button", name="gpt-4o").click()

        await expect(page.locator("#list button")).to_have_count(1)
        await expect(page.locator("#list button")).to_contain_text("To Rome?")
        await expect(page.locator("#list button")).to_contain_text("planner · gpt-4o · ann")
        await expect(totals).to_have_text("1 trace · 1 with errors · 2,600 tokens · $0.0050")


async def test_a_trace_leads_to_its_thread_in_the_chat(browser: Browser) -> None:
    async with served(a_runtime(say("Noon."))) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(url)
        await ask(page, "What time is it?")
        await expect(answer(page)).to_have_text("Noon.")
        await open_traces(page, url)
        await page.get_by_role("button", name="Open in chat").click()

        await expect(answer(page)).to_have_text("Noon.")


async def test_only_a_thread_that_is_there_and_ones_own_is_opened_in_the_chat(
    browser: Browser,
) -> None:
    runtime = a_runtime()
    for record in [*trip("a" * 32), *trip("b" * 32, USER_NAME="ann")]:
        store_of(runtime).add(decode_span(record))
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(f"{url}traces#{'a' * 32}")
        await page.get_by_role("button", name="Open in chat").click()
        await expect(page.locator("#no-thread")).to_have_text("This thread is not there any more.")
        await page.goto(f"{url}traces#{'b' * 32}")
        await expect(page.locator("#facts")).to_contain_text("ann")
        await expect(page.get_by_role("button", name="Open in chat")).to_be_hidden()
        await expect(page.locator("#no-thread")).to_be_empty()


@pytest.mark.parametrize("width", [1280, 390])
async def test_each_link_of_the_flow_leads_from_a_caller_to_what_it_called(
    browser: Browser, width: int
) -> None:
    runtime = a_runtime()
    await rated_trip(runtime)
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        await page.set_viewport_size({"width": width, "height": 800})
        await page.goto(f"{url}traces#{'b' * 32}")
        await page.get_by_role("tab", name="Flow").click()
        boxes = page.locator("#flow-box rect")
        await expect(boxes).to_have_count(6)
        places = [await box.bounding_box() for box in await boxes.all()]
        assert all(it is not None and it["x"] + it["width"] < width for it in places)
        names = await page.locator("#flow-box text:not(.small)").all_text_contents()
        assert names == ["planner", "gpt-4o", "gpt-5", "find_flights", "writer", "gpt-4o"]
        await expect(page.locator("#flow-box path")).to_have_count(5)
        # no link crosses the box of another: each ends where the box of the one called begins
        for left, other in pairwise(places):
            assert left is not None and other is not None
            assert left["y"] + left["height"] < other["y"] or left["x"] < other["x"]
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        await keep_picture(page, f"flow-{width}")


@pytest.mark.parametrize("width", [1280, 390])
async def test_a_comparison_tells_errors_answers_and_costs(browser: Browser, width: int) -> None:
    runtime = a_runtime()
    await rated_trip(runtime)
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        await page.set_viewport_size({"width": width, "height": 800})
        await page.goto(f"{url}traces#{'b' * 32}")
        await page.get_by_role("button", name="Compare").click()
        await page.locator("#list button", has_text="thumbs down").click()
        rows = page.locator("#difference-box tr")
        await expect(rows.filter(has_text="in all")).to_contain_text("$0.0060+")
        await expect(rows.filter(has_text="in all")).to_contain_text("$0.0050")
        failed = rows.filter(has_text="execute_tool book").locator("td").last
        await expect(failed).to_have_text("new")
        await expect(failed).to_have_class("more")  # as bad as what became slower
        await expect(rows.filter(has_text="another answer")).to_have_count(1)
        await keep_picture(page, f"difference-{width}")
