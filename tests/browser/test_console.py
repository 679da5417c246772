import json
import re
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pytest
from fastapi import Depends, FastAPI, HTTPException
from playwright.async_api import Browser, Request, expect
from starlette.requests import HTTPConnection

from copilot_runtime import CopilotRuntime, DemoAdapter, ScriptedAdapter
from copilot_runtime.adapters import scripted
from copilot_runtime.api import Adapter, ChatRequest, RunInput
from copilot_runtime.api.events import (
    Activity,
    AgentState,
    Event,
    Events,
    Interrupt,
    ReasoningContent,
    ReasoningEnd,
    ReasoningStart,
    StepFinished,
    StepStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.base.errors import AuthenticationFailed, NetworkError
from copilot_runtime.extensions.settings import Settings
from tests.browser.console import (
    HeldAdapter,
    answer,
    console,
    open_card,
    open_panel,
    opened,
    say,
    sign_in,
    titles,
)
from tests.wire_agui.server import serving

pytestmark = pytest.mark.anyio


class RefusedAdapter(Adapter):
    async def stream(self, request: ChatRequest) -> Events:
        if request.messages:
            raise AuthenticationFailed("OpenAI refused the key 'sk-…'. Is OPENAI_API_KEY right?")
        yield TextMessageStart(message_id="never")


class OnceBroken(Adapter):
    """Breaks off in its first answer, and not again."""

    is_broken = True

    async def stream(self, request: ChatRequest) -> Events:
        del request
        message_id = uuid4().hex
        yield TextMessageStart(message_id=message_id)
        yield TextMessageContent(message_id=message_id, content="One")
        if self.is_broken:
            self.is_broken = False
            raise NetworkError("It broke off.")
        yield TextMessageContent(message_id=message_id, content=", two")
        yield TextMessageEnd(message_id=message_id)


class PickyAdapter(HeldAdapter):
    def find_failing_checks(self) -> Sequence[str]:
        return ["provider", "tools: The tool 'odd' of 'shop' is not offered: it is no object"]


class ScriptedAgent:
    """Does what it is told, and repeats what a person has answered to its questions."""

    def __init__(self, *events: Event) -> None:
        self._events = events

    async def run(self, run: RunInput) -> Events:
        for event in self._events if not run.resume else ():
            yield event
        for number, resume in enumerate(run.resume):
            for event in said(f"{resume.status} with {resume.payload}", f"{run.log_id}-{number}"):
                yield event


class Ears:
    async def transcribe(self, audio: bytes, filename: str, mime_type: str) -> str:
        return f"I heard {mime_type}" if audio and filename else "nothing"


def said(words: str, message_id: str = "said") -> list[Event]:
    return [
        TextMessageStart(message_id=message_id),
        TextMessageContent(message_id=message_id, content=words),
        TextMessageEnd(message_id=message_id),
    ]


def agents(**named: ScriptedAgent) -> CopilotRuntime:
    return CopilotRuntime(agents=named, settings=Settings(threads="memory"))


async def test_text_grows_while_the_model_speaks(browser: Browser):
    model = HeldAdapter("One", " two", " three")
    async with console(browser, model) as page:
        await say(page, "count")
        for so_far in ("One", "One two", "One two three"):
            model.say_one()
            await expect(answer(page)).to_have_text(so_far)
        await expect(page.get_by_role("button", name="Send")).to_be_visible()


async def test_actions_of_the_browser_change_the_page_and_are_reported_to_the_model(
    browser: Browser,
):
    async with console(browser, DemoAdapter(pace=0)) as page:
        await say(page, 'Make it dark; add a note "water the plants"')

        await expect(answer(page)).to_contain_text("The page is dark now.")
        await expect(page.locator(".card")).to_have_count(2)
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        await expect(page.get_by_role("list", name="Notes")).to_have_text("water the plants")


async def test_tools_that_are_left_out_are_named_with_their_reasons(browser: Browser):
    async with console(browser, PickyAdapter()) as page:
        await open_panel(page, "State")
        left_out = page.get_by_role("list", name="Tools that are left out")
        await expect(left_out).to_have_text(
            "The tool 'odd' of 'shop' is not offered: it is no object"
        )


async def test_an_action_of_the_server_shows_its_arguments_and_its_result(browser: Browser):
    async with console(browser, DemoAdapter(pace=0)) as page:
        await page.get_by_role("button", name="Get time in Paris").click()

        await expect(page.locator(".card .brief")).to_have_text("Paris")
        card = await open_card(page, "get_time")
        await expect(card.locator(".arguments")).to_have_text("cityParis")
        await expect(card.locator(".result")).to_have_text("12:00 in Paris")
        await expect(answer(page)).to_have_text("The action get_time answered: 12:00 in Paris")


def suggesting(*suggestions: str, **of_agents: list[str]) -> Settings:
    """Return the settings of the demo, without a program, with these suggestions."""
    return Settings.model_validate(
        {
            "threads": "memory",
            "adapter": {"name": "demo"},
            "console": {"suggestions": of_agents or [*suggestions]},
        }
    )


async def test_what_only_the_demo_knows_is_offered_to_the_demo_alone(browser: Browser):
    runtime = CopilotRuntime(
        DemoAdapter(), agents={"echo": ScriptedAgent()}, settings=suggesting("Set theme dark")
    )
    async with console(browser, runtime) as page:
        offered = page.get_by_role("group", name="Suggestions").get_by_role("button")
        await expect(offered).to_have_count(1)
        await page.get_by_label("Agent", exact=True).select_option("echo")
        await expect(offered).to_have_count(0)
        async with page.expect_request("**/agent/*/run") as asked:
            await say(page, "hello")
    assert json.loads((await asked.value).post_data or "{}")["tools"] == []


async def test_the_page_opens_with_the_agent_whose_suggestions_are_the_first(browser: Browser):
    runtime = CopilotRuntime(
        DemoAdapter(),
        agents={"echo": ScriptedAgent()},
        settings=suggesting(gone=[], echo=["Say it"]),
    )
    async with console(browser, runtime) as page:
        await expect(page.get_by_label("Agent", exact=True)).to_have_value("echo")
        await expect(page.get_by_role("button", name="Say it")).to_be_visible()


_IS_WHOLE = """chips => [...chips.children].every(chip =>
    chip.getBoundingClientRect().right <= chips.getBoundingClientRect().right)"""


async def test_a_suggestion_that_was_asked_makes_room_for_the_others(browser: Browser):
    settings = suggesting(
        "Hello", "Thanks, that was all", "Think about the sea" + " and so on" * 6, "Thanks"
    )
    async with console(browser, CopilotRuntime(DemoAdapter(pace=0), settings=settings)) as page:
        offered = page.get_by_role("group", name="Suggestions").get_by_role("button")
        for width, left in ((360, 3), (700, 2), (1280, 1), (1920, 0)):
            await page.set_viewport_size({"width": width, "height": 800})
            assert await page.locator("#chips").evaluate(_IS_WHOLE)
            await offered.first.click()
            await expect(offered).to_have_count(left)
            await expect(page.get_by_role("button", name="Send")).to_be_visible()

        await expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.parametrize("how", ["button", "key"])
async def test_stop_keeps_what_was_said_and_frees_the_model(browser: Browser, how: str):
    model = HeldAdapter("One", " two")
    async with console(browser, model) as page:
        await say(page, "count")
        model.say_one()
        await expect(answer(page)).to_have_text("One")
        if how == "button":
            await page.get_by_role("button", name="Stop").click()
        else:
            await page.keyboard.press("Escape")

        await model.left.wait()
        await expect(page.locator(".stopped")).to_have_text("Stopped.")
        await expect(page.get_by_role("button", name="Send")).to_be_visible()
        await expect(answer(page)).to_have_text("One")


async def test_stop_works_before_the_first_word(browser: Browser):
    model = HeldAdapter("One")
    async with console(browser, model) as page:
        await say(page, "count")
        await page.get_by_role("button", name="Stop").click()

        await expect(page.locator(".stopped")).to_have_text("Stopped.")
        await expect(page.locator(".assistant")).to_have_count(0)


async def test_a_refused_key_is_a_banner_that_names_the_cause(browser: Browser):
    async with console(browser, RefusedAdapter()) as page:
        await say(page, "hello")

        banner = page.get_by_role("alert")
        await expect(banner).to_contain_text("Authentication error")
        await expect(banner).to_contain_text("Is OPENAI_API_KEY right?")
        await banner.get_by_role("button", name="Try again").click()
        await expect(page.get_by_role("alert")).to_have_count(1)


async def test_a_limit_has_a_plain_title_and_a_button_that_counts_down(browser: Browser):
    settings = Settings.model_validate({"threads": "memory", "limits": {"runs_per_user": "1/hour"}})
    async with console(browser, CopilotRuntime(DemoAdapter(pace=0), settings=settings)) as page:
        await say(page, "hello")
        await expect(answer(page)).to_have_text(re.compile(r"\w"))
        await expect(page.get_by_role("button", name="Send")).to_be_visible()
        await say(page, "hello again")

        banner = page.get_by_role("alert")
        await expect(banner).to_contain_text("Limit reached")
        await expect(banner).to_contain_text("You have asked 1 question in 1 hour")
        await expect(banner).not_to_contain_text("LIMIT_EXCEEDED")
        again = banner.get_by_role("button", name="Try again")
        await expect(again).to_be_disabled()
        await expect(again).to_have_text(re.compile(r"Try again in \d+ min"))

        headers = {"content-type": "application/json", "retry-after": "2"}
        body = '{"message":"Wait.","errors":[{"extensions":{"code":"LIMIT_EXCEEDED"}}]}'
        await page.route(
            "**/agent/*/run", lambda route: route.fulfill(status=429, headers=headers, body=body)
        )
        await say(page, "hello once more")
        await expect(banner.last).to_contain_text("Limit reachedWait.")
        again = banner.last.get_by_role("button", name="Try again")
        await expect(again).to_have_text(re.compile(r"Try again in [12] s"))
        await expect(again).to_have_text("Try again")
        await expect(again).to_be_enabled()


async def test_an_error_in_the_middle_keeps_the_words_before_it(browser: Browser):
    async with console(browser, DemoAdapter(pace=0)) as page:
        await say(page, "Show me an error")

        await expect(page.get_by_role("alert")).to_contain_text("Network error")
        await expect(answer(page)).to_have_text("Here it comes: I start a sentence and")


@pytest.mark.parametrize(
    ("status", "kind", "body", "said"),
    [
        (401, "application/json", '{"detail": "Not you."}', ["Sign in", "Not you."]),
        (404, "application/json", '{"error": "Agent not found"}', ["HTTP 404", "Agent not found"]),
        (502, "text/html", "<h1>Bad gateway</h1>", ["HTTP 502", "<h1>Bad gateway</h1>"]),
        (200, "text/html", "<h1>Welcome</h1>", ["HTTP 200", "<h1>Welcome</h1>"]),
        (200, "text/event-stream", "", ["No answer"]),
        (200, "text/event-stream", 'data: {"type"\n\n', ["Connection lost"]),
        (
            200,
            "text/event-stream",
            'data: {"type":"RUN_STARTED","threadId":"t","runId":"r"}\r\n\r\n',
            ["Connection lost", "The server does not have this answer."],
        ),
    ],
)
async def test_an_answer_that_is_none_says_what_it_was(
    browser: Browser, status: int, kind: str, body: str, said: list[str]
):
    async with console(browser, DemoAdapter(pace=0)) as page:
        headers = {"content-type": kind}
        await page.route(
            "**/agent/*/run", lambda route: route.fulfill(status=status, headers=headers, body=body)
        )
        await say(page, "hello")

        for words in said:
            await expect(page.get_by_role("alert")).to_contain_text(words)


async def test_a_server_that_is_gone_is_said_and_can_be_tried_again(browser: Browser):
    async with console(browser, DemoAdapter(pace=0)) as page:
        await page.route("**/agent/*/run", lambda route: route.abort("connectionrefused"))
        await say(page, "think")
        await expect(page.get_by_role("alert")).to_contain_text("could not be reached")

        await page.unroute("**/agent/*/run")
        await page.get_by_role("button", name="Try again").click()

        await expect(answer(page)).to_have_text("I have thought about it. (I cannot really think.)")
        await expect(page.get_by_role("alert")).to_have_count(0)


async def test_what_a_model_says_is_never_markup(browser: Browser):
    model = HeldAdapter('<img src=x onerror="document.title=1"> **bold** `<b>`')
    async with console(browser, model) as page:
        model.say_one()
        await say(page, "attack")

        await expect(answer(page)).to_have_text(re.compile(r"^<img src=x .*> bold <b>$"))
        await expect(answer(page).locator("strong")).to_have_text("bold")
        await expect(answer(page).locator("img, b")).to_have_count(0)


async def test_the_wire_can_be_watched(browser: Browser):
    async with console(browser, DemoAdapter(pace=0)) as page:
        await open_panel(page, "Wire")
        await say(page, "hello")

        await expect(page.locator("#wire li").last).to_contain_text('"type":"RUN_FINISHED"')


async def test_the_state_is_shown_and_a_person_may_change_it(browser: Browser):
    change = scripted.call("AGUISendStateSnapshot", {"snapshot": {"mood": "calm"}}, id="c")
    model = ScriptedAdapter(change, scripted.say("It is calm."), scripted.say("Hello!", id="m2"))
    async with console(browser, model) as page:
        await open_panel(page, "State")
        await say(page, "Be calm")
        state = page.get_by_label("State of the agent, as JSON")
        await expect(state).to_have_value('{\n  "mood": "calm"\n}')

        await state.fill('{"mood": "stormy"}')
        async with page.expect_request("**/agent/*/run") as asked:
            await say(page, "hello")

        assert sent_state(await asked.value) == {"mood": "stormy"}


async def test_a_state_that_is_no_json_is_not_sent(browser: Browser):
    async with console(browser, DemoAdapter(pace=0)) as page:
        await open_panel(page, "State")
        state = page.get_by_label("State of the agent, as JSON")
        await state.fill('{"mood":')

        await expect(page.get_by_text("Not sent yet")).to_be_visible()
        async with page.expect_request("**/agent/*/run") as asked:
            await say(page, "hello")
        assert sent_state(await asked.value) == {}


async def test_changes_of_a_state_add_up(browser: Browser):
    plans = [{"stops": ["a"]}, {"stops": ["a", "b/~"]}, {"stops": ["b/~"], "x/y~": {"z": 1}}]
    states = [AgentState(agent="planner", state=state) for state in plans]
    async with console(browser, agents(planner=ScriptedAgent(*states, *said("done")))) as page:
        await say(page, "plan")
        await expect(answer(page)).to_have_text("done")

        await open_panel(page, "State")
        state = page.get_by_label("State of the agent, as JSON")
        await expect(state).to_have_value(re.compile(r'^{\s*"stops": \[\s*"b/~"\s*\],\s*"x/y~"'))


async def test_thoughts_are_folded_away(browser: Browser):
    async with console(browser, DemoAdapter(pace=0)) as page:
        await say(page, "Think about the sea")
        await expect(answer(page)).to_contain_text("I have thought about it.")
        await expect(page.get_by_text("The person wants me to think.")).to_be_hidden()

        await page.get_by_text("Thoughts").click()

        await expect(page.get_by_text("The person wants me to think.")).to_be_visible()


async def test_steps_and_activities_are_shown_while_they_go_on(browser: Browser):
    search = [
        StepStarted(name="search"),
        Activity(message_id="a", activity_type="search", content={"found": 1}),
        Activity(message_id="a", activity_type="search", content={"found": 2}),
        StepFinished(name="search"),
    ]
    async with console(browser, agents(finder=ScriptedAgent(*search, *said("two")))) as page:
        await say(page, "search")

        await expect(answer(page)).to_have_text("two")
        await expect(page.locator(".step")).to_have_text("▸ search")
        await expect(page.locator(".card pre")).to_have_text('{\n  "found": 2\n}')


async def test_files_are_chips_with_their_names_and_what_is_said_of_them(browser: Browser):
    files = [
        {"name": "sales.csv", "state": "searchable"},
        {"name": "game.exe", "state": "refused", "message": "It is a program."},
    ]
    shown = Activity(message_id="f", activity_type="files", content={"files": files})
    async with console(browser, agents(reader=ScriptedAgent(shown, *said("Two.")))) as page:
        await say(page, "Which?")

        chips = page.get_by_role("list", name="Files").get_by_role("listitem")
        await expect(chips).to_have_text(["sales.csv", "game.exe · It is a program."])


async def test_times_at_midnight_are_dates_in_a_column_without_others(browser: Browser):
    rows = [["2025-01-01T00:00:00", "2025-01-01T00:00:00"], [None, "2025-02-01T08:30:00"]]
    table = {"columns": [{"name": "month"}, {"name": "at"}], "rows": rows}
    shown = Activity(message_id="t", activity_type="analyst-table", content=table)
    async with console(browser, agents(analyst=ScriptedAgent(shown, *said("So.")))) as page:
        await say(page, "when?")

        cells = page.locator(".card tbody tr").first.locator("td")
        await expect(cells).to_have_text(["2025-01-01", "2025-01-01T00:00:00"])


BOOKING = Interrupt(
    interrupt_id="booking",
    reason="approval",
    message="Book a room in Oslo?",
    response_schema={"type": "object", "properties": {"nights": {"type": "integer"}}},
)


async def test_numbers_of_a_column_have_the_same_digits(browser: Browser):
    names = ("price", "average", "share", "count", "year", "latitude")
    rows = [
        [1579.7, 726.5771432189, 0.08457012345, 12345, 2026, 59.913868],
        [2.25, 3, 0.00000123456789, 1, 2025, 5.5],
        [131484.6500000003, 0.00123456789, None, 2.0, 2024, 1],
    ]
    table = {"columns": [{"name": name} for name in names], "rows": rows}
    shown = Activity(message_id="t", activity_type="analyst-table", content=table)
    async with console(browser, agents(analyst=ScriptedAgent(shown, *said("So.")))) as page:
        await say(page, "how much?")

        lines = page.locator(".card tbody tr")
        await expect(lines).to_have_count(3)
        assert [await line.locator("td").all_inner_texts() for line in await lines.all()] == [
            ["1,579.70", "726.58", "0.0846", "12,345", "2026", "59.913868"],
            ["2.25", "3.00", "0.0000012", "1", "2025", "5.500000"],
            ["131,484.65", "0.0012", "null", "2", "2024", "1.000000"],
        ]


async def test_a_question_of_an_agent_waits_for_approval_even_over_a_reload(browser: Browser):
    async with console(browser, agents(booker=ScriptedAgent(BOOKING))) as page:
        await say(page, "book")
        question = page.get_by_role("region", name="Question of the agent")
        await expect(question).to_contain_text("Book a room in Oslo?")
        await page.reload()
        await question.get_by_label("Nights").fill("2")
        await question.get_by_role("button", name="Approve").click()

        await expect(answer(page)).to_have_text("resolved with {'nights': 2}")
        await expect(question).to_contain_text("approved by you: 2")
        await expect(question.get_by_role("button", name="Approve")).to_be_hidden()


async def test_a_question_can_be_declined_also_by_saying_something_else(browser: Browser):
    async with console(browser, agents(booker=ScriptedAgent(BOOKING))) as page:
        question = page.get_by_role("region", name="Question of the agent")
        await say(page, "book")
        await question.get_by_role("button", name="Decline").click()
        await expect(answer(page)).to_have_text("cancelled with None")

        await say(page, "book")
        await expect(question).to_have_count(2)
        await say(page, "never mind")
        await expect(page.locator(".assistant")).to_have_text(["cancelled with None"] * 2)


EXPORT = Interrupt(
    interrupt_id="export",
    reason="approval",
    message="Export 20,000 rows?",
    metadata={"tool": "download", "arguments": {"file": "june", "filter": {"shop": "Oslo"}}},
    response_schema={
        "type": "object",
        "properties": {"approved": {"type": "boolean"}, "note": {"type": "string"}},
    },
)


async def test_an_approval_says_who_would_do_what_and_what_was_answered(browser: Browser):
    async with console(browser, agents(clerk=ScriptedAgent(EXPORT))) as page:
        await say(page, "export")
        question = page.get_by_role("region", name="Question of the agent")
        await expect(question).to_contain_text("The agent clerk would call download with:")
        await expect(question.locator(".pairs .pairs")).to_have_text("shopOslo")
        await question.get_by_label("Note").fill("Too many.")
        await question.get_by_role("button", name="Decline").click()

        await expect(question).to_contain_text("declined by you: Too many.")
        told = "resolved with {'note': 'Too many.', 'approved': False}"
        await expect(answer(page)).to_have_text(told)


async def test_thoughts_that_an_analyst_lists_are_not_shown_as_reasoning_too(browser: Browser):
    thoughts = [{"type": "reasoning", "content": "Which table?"}]
    listed = {"thoughts": thoughts, "is_done": True, "count": 1}
    events = [
        Activity(message_id="t", activity_type="analyst-thoughts", content=listed),
        *(ReasoningStart(message_id="r"), ReasoningContent(message_id="r", content="Which table?")),
        ReasoningEnd(message_id="r"),
        *said("This one."),
    ]
    async with console(browser, agents(analyst=ScriptedAgent(*events))) as page:
        await say(page, "which?")

        await expect(answer(page)).to_have_text("This one.")
        await expect(page.locator(".card summary")).to_have_text("1 thought")
        await expect(page.locator(".thought")).to_have_count(0)


async def test_content_of_another_form_leaves_the_rest_of_an_answer_as_it_is(browser: Browser):
    odd = Activity(message_id="s", activity_type="sources", content={"sources": {"a": 1}})
    async with console(browser, agents(quoter=ScriptedAgent(odd, *said("Done.")))) as page:
        await say(page, "quote")

        await expect(answer(page)).to_have_text("Done.")
        await expect(page.get_by_role("log")).to_contain_text("This part of the answer cannot be")


async def test_a_chart_follows_the_theme(browser: Browser):
    chart = {"id": "c", "title": "Sales", "png_url": "analyst/charts/c.png"}
    event = Activity(message_id="c", activity_type="analyst-chart", content=chart)
    async with console(browser, agents(analyst=ScriptedAgent(event))) as page:
        async with page.expect_request("**/analyst/charts/c.png?theme=light"):
            await say(page, "draw")
        async with page.expect_request("**/analyst/charts/c.png?theme=dark"):
            await page.get_by_role("button", name="Dark theme").click()


async def test_every_agent_can_be_chosen(browser: Browser):
    both = agents(ann=ScriptedAgent(*said("I am Ann.")), bob=ScriptedAgent(*said("I am Bob.")))
    async with console(browser, both) as page:
        await page.get_by_label("Agent", exact=True).select_option("bob")
        await say(page, "who are you?")
        await expect(answer(page)).to_have_text("I am Bob.")
        await page.reload()

        await expect(page.get_by_label("Agent", exact=True)).to_have_value("bob")
        await expect(answer(page)).to_have_text("I am Bob.")


async def test_an_image_is_sent_and_shown_again_after_a_reload(browser: Browser, tmp_path: Path):
    picture = tmp_path / "dot.svg"
    picture.write_text('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>')
    async with console(browser, DemoAdapter(pace=0)) as page:
        await page.locator("#file").set_input_files(picture)
        await expect(page.get_by_alt_text("The image to send")).to_be_visible()
        await say(page, "What is this?")
        await expect(answer(page)).to_contain_text("You sent an image (dot.svg, image/svg+xml")

        await page.reload()

        await expect(page.get_by_alt_text("Attached image")).to_have_attribute(
            "src", re.compile("^data:image/svg")
        )


SOUND = """navigator.mediaDevices.getUserMedia = async () => {
  const context = new AudioContext(), tone = context.createOscillator();
  const target = context.createMediaStreamDestination();
  tone.connect(target);
  tone.start();
  return target.stream;
}"""


async def test_what_is_spoken_becomes_text_where_the_server_can_hear(browser: Browser):
    hears = CopilotRuntime(
        adapter=DemoAdapter(pace=0), transcriber=Ears(), settings=Settings(threads="memory")
    )
    async with console(browser, hears) as page:
        await page.evaluate(SOUND)
        await page.get_by_role("button", name="Speak", exact=True).click()
        await page.get_by_role("button", name="Stop speaking").click()

        await expect(page.get_by_label("Message", exact=True)).to_have_value(
            re.compile("^I heard audio/webm")
        )


async def test_a_server_that_cannot_hear_shows_no_microphone(browser: Browser):
    async with console(browser, DemoAdapter(pace=0)) as page:
        await say(page, "hello")
        await expect(answer(page)).to_contain_text("Hello!")

        await expect(page.get_by_role("button", name="Speak")).to_be_hidden()


async def test_tokens_are_counted_once_for_an_answer_of_several_runs(browser: Browser):
    async with console(browser, DemoAdapter(pace=0)) as page:
        await say(page, "Add a note: water the plants")

        await expect(answer(page)).to_contain_text("The note is on the page, number 1.")
        await expect(page.locator(".usage")).to_have_text(re.compile(r"^demo: [\d,]+ tokens in"))


async def test_a_login_is_sent_with_every_request_and_outlives_a_reload(browser: Browser):
    async with console(browser, DemoAdapter(pace=0)) as page:
        await sign_in(page, "one")
        async with page.expect_request("**/threads?*") as asked:
            await page.reload()

        assert (await asked.value).headers["authorization"] == "Bearer one"


async def test_on_a_phone_threads_are_a_drawer_and_the_panel_covers_the_chat(browser: Browser):
    async with console(browser, DemoAdapter(pace=0)) as page:
        await page.set_viewport_size({"width": 390, "height": 780})
        await say(page, "hello")
        await expect(answer(page)).to_contain_text("Hello!")
        await expect(page.get_by_role("complementary")).to_be_hidden()

        await page.get_by_role("button", name="Panel", exact=True).click()
        await expect(page.get_by_role("complementary")).to_be_visible()
        await page.get_by_role("button", name="Close the panel").click()

        await page.get_by_role("button", name="Threads").click()
        await page.get_by_role("link", name="hello").click()
        await expect(page.get_by_role("link", name="hello")).to_be_hidden()
        await expect(answer(page)).to_be_visible()


async def test_a_page_that_is_refused_asks_to_sign_in_and_goes_on(browser: Browser):
    def authenticate(connection: HTTPConnection) -> str:
        if connection.headers.get("authorization") != "Bearer key":
            raise AuthenticationFailed("Who are you?")
        return "ann"

    runtime = CopilotRuntime(
        DemoAdapter(pace=0), authenticate=authenticate, settings=Settings(threads="memory")
    )
    async with console(browser, runtime) as page:
        dialog = page.get_by_role("dialog", name="Sign in")
        await expect(dialog).to_contain_text("Who are you?")
        await sign_in(page, "key")
        await say(page, "hello")

        await expect(answer(page)).to_contain_text("Hello!")
        await expect(page.get_by_role("alert")).to_have_count(0)
        await expect(page.locator("#user-name")).to_have_text("ann")


async def test_a_page_behind_the_login_of_an_application_names_its_user_until_that_ends(
    browser: Browser,
):
    def signed_in(connection: HTTPConnection) -> None:
        if "session" not in connection.cookies:
            raise HTTPException(303, headers={"location": "/login"})

    def find_user(connection: HTTPConnection) -> str:
        return connection.cookies["session"]

    app = FastAPI()
    app.add_api_route("/login", lambda: "Who are you?")
    runtime = CopilotRuntime(
        DemoAdapter(pace=0), authenticate=find_user, settings=Settings(threads="memory")
    )
    runtime.mount(app, "/api", dependencies=[Depends(signed_in)], console=True)
    async with serving(app) as port, opened(browser) as context:
        url = f"http://127.0.0.1:{port}/"
        await context.add_cookies([{"name": "session", "value": "ann", "url": url}])
        page = await context.new_page()
        await page.goto(url)
        dialog = page.get_by_role("dialog", name="Sign in")
        await page.get_by_role("button", name="Signed in as ann").click()
        account = page.get_by_role("dialog", name="Account")
        await expect(account).to_contain_text("You are signed in as ann.")
        await account.get_by_role("button", name="Close").click()
        await context.clear_cookies()
        await say(page, "hello")
        await expect(dialog.get_by_role("button", name="Sign in")).to_be_focused()
        await expect(dialog.get_by_label("Token or API key")).to_be_hidden()
        await dialog.get_by_role("button", name="Sign in").click()

        await expect(page).to_have_url(re.compile("/login"))


async def test_a_question_is_edited_in_a_thread_of_its_own(browser: Browser):
    async with console(browser, DemoAdapter(pace=0)) as page:
        await say(page, "think")
        await expect(answer(page)).to_contain_text("I have thought about it.")
        await expect(page.get_by_role("button", name="Send")).to_be_visible()
        await page.get_by_label("Message", exact=True).press("ArrowUp")
        await page.get_by_label("Edit the message").fill("hello")
        await page.get_by_label("Edit the message").press("Enter")

        await expect(answer(page)).to_contain_text("Hello!")
        await expect(page.locator(".bubble")).to_have_text(["hello"])
        await expect(titles(page)).to_have_text(["hello", "think"])


async def test_a_conversation_goes_on_from_an_answer_in_a_thread_of_its_own(browser: Browser):
    async with console(browser, DemoAdapter(pace=0)) as page:
        for words in ("think", "hello"):
            await say(page, words)
            await expect(page.locator(".run").last).to_be_visible()
            await expect(page.get_by_role("button", name="Send")).to_be_visible()
        await page.get_by_role("button", name="Go on from here in a new thread").first.click()
        await expect(page.locator(".bubble")).to_have_text(["think"])
        await say(page, "Show me an error")

        await expect(page.locator(".bubble")).to_have_text(["think", "Show me an error"])
        await expect(titles(page)).to_have_text(["think", "think"])


async def test_an_answer_is_asked_for_again_in_place_of_the_last_one(browser: Browser):
    model = HeldAdapter("One")
    async with console(browser, model) as page:
        model.say_one()
        await say(page, "count")
        await expect(answer(page)).to_have_text("One")
        await page.get_by_role("button", name="Ask again").click()
        await expect(page.locator(".assistant")).to_have_count(0)
        model.say_one()

        await expect(page.locator(".assistant")).to_have_text(["One"])
        await expect(page.locator(".bubble")).to_have_text(["count"])


async def test_an_answer_that_broke_off_and_was_tried_again_is_one_answer(browser: Browser):
    async with console(browser, OnceBroken()) as page:
        await say(page, "count")
        await expect(page.get_by_role("alert")).to_contain_text("It broke off.")
        await page.get_by_role("button", name="Try again").click()
        await expect(page.locator(".assistant")).to_have_text(["One, two"])
        await expect(page.get_by_role("button", name="Send")).to_be_visible()
        await page.reload()
        await expect(page.locator(".assistant")).to_have_text(["One, two"])


def sent_state(request: Request) -> object:
    return json.loads(request.post_data or "{}")["state"]


async def test_a_page_without_data_does_not_ask_for_any(browser: Browser):
    asked: list[str] = []
    async with console(browser, DemoAdapter()) as page:
        page.on("request", lambda request: asked.append(request.url))
        await page.reload()
        await say(page, "Hello")
        await expect(answer(page)).to_be_visible()
    assert [url for url in asked if "/analyst" in url] == []
