"""Answers to interrupts: to a question that is open, once, and in the form that it asks for."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, Events, RunInput, Settings
from copilot_runtime.adapters.scripted import Gate, ScriptedAdapter, call, say
from copilot_runtime.api.events import Custom, Interrupt, RunFinished
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.base.errors import Misuse
from tests.agents.pages import GIVEN, answered, failure, questions
from tests.in_one_test import in_one_test
from tests.wire.client import PLAIN, chat
from tests.wire.client import user as v1_user
from tests.wire_agui.http import Browser, Event, text_of, user
from tests.wire_agui.server import PATH, browsing, serving

pytestmark = pytest.mark.anyio

MEMORY = Settings(threads="memory")
APPROVAL = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}},
    "required": ["approved"],
}
NO_QUESTION = "there is no such question in this conversation."


class Launcher:
    """Asks before it launches. It stores nothing, and launches whenever it gets an answer."""

    def __init__(
        self,
        schema: Mapping[str, Any] | None = None,
        *,
        fails: bool = False,
        gate: Gate | None = None,
    ) -> None:
        self.schema = schema
        self.fails = fails
        self.gate = gate
        self.launches: list[Any] = []

    async def run(self, run: RunInput) -> Events:
        if not run.resume:
            for event in say("Ready.", id=f"ready-{run.run_id}"):
                yield event
            yield Interrupt(
                interrupt_id=f"ask-{run.thread_id}-{run.run_id}",
                value="Launch?",
                message="Launch?",
                response_schema=self.schema,
            )
            return
        self.launches.append(run.resume[0].payload or run.resume[0].response)
        if self.gate is not None:
            await self.gate.wait()
        if self.fails:
            raise RuntimeError("the rocket is lost")
        for event in say("Launched.", id=f"launched-{run.run_id}"):
            yield event


async def ask(browser: Browser, **fields: Any) -> Event:
    """Have the agent ask; return its question."""
    events = (await browser.run(**{"agent": "it", "run": "r1", **fields})).events()
    [question] = questions(events)
    return question


async def answer(browser: Browser, *resume: Any, run: str = "r2", **fields: Any) -> Sequence[Event]:
    fields = {"agent": "it", "run": run, "resume": [*resume], **fields}
    return (await browser.run(**fields)).events()


async def test_an_answer_counts_once() -> None:
    launcher: Any = Launcher()
    async with browsing(agents={"it": launcher}) as browser:
        question = await ask(browser)
        first = await answer(browser, answered(question, "yes"))
        second = await answer(browser, answered(question, "yes"), run="r3")

    assert text_of(first) == "Launched."
    assert failure(second) == GIVEN
    assert second[-1]["code"] == "MISUSE"
    assert launcher.launches == ["yes"]


@in_one_test("when_busy", ["refuse", "supersede", "queue"])
async def test_of_an_answer_that_comes_twice_at_once_one_counts(when_busy: Any) -> None:
    gate = Gate()
    launcher: Any = Launcher(gate=gate)
    settings = Settings(threads="memory", when_busy=when_busy)
    async with browsing(agents={"it": launcher}, settings=settings) as browser:
        question = await ask(browser)
        resume = [answered(question, "yes")]
        first = asyncio.create_task(answer(browser, *resume))
        await gate.wait_for_event()
        others = await asyncio.gather(
            *(answer(browser, *resume, run=f"again-{number}") for number in range(5))
        )
        gate.release()
        done = await first

    assert text_of(done) == "Launched."
    assert {(failure(other), other[-1]["code"]) for other in others} == {
        ("This answer has been given already, and the agent works on it.", "MISUSE")
    }
    assert launcher.launches == ["yes"]


async def test_an_answer_that_comes_again_with_the_id_of_its_run_is_shown_what_came_of_it() -> None:
    gate = Gate()
    launcher: Any = Launcher(gate=gate)
    async with browsing(agents={"it": launcher}) as browser:
        resume = [answered(await ask(browser), "yes")]
        first = asyncio.create_task(answer(browser, *resume, run="r1"))
        await gate.wait_for_event()
        again = asyncio.create_task(answer(browser, *resume, run="r1"))
        gate.release()
        answers = [await first, await again, await answer(browser, *resume, run="r1")]

    assert [text_of(events) for events in answers] == ["Launched."] * 3
    assert launcher.launches == ["yes"]


async def test_the_same_answer_may_be_given_when_the_same_question_is_asked_again() -> None:
    answers: list[Any] = []

    async def ask_twice(run: RunInput) -> Events:
        answers.extend(resume.payload for resume in run.resume)
        if len(answers) < 2:
            yield Interrupt(interrupt_id="ask", message="Really?")

    async with browsing(agents={"it": ask_twice}) as browser:
        question = await ask(browser)
        last = [await answer(browser, answered(question, "yes"), run="r1") for _ in range(3)][-1]

    assert answers == ["yes", "yes"]
    assert last[-1]["type"] == "RUN_FINISHED"


async def test_an_answer_counts_once_after_the_server_has_been_started_again(
    tmp_path: Path,
) -> None:
    settings = Settings(threads=f"sqlite:{tmp_path}/threads.db")
    launcher: Any = Launcher()
    async with browsing(agents={"it": launcher}, settings=settings) as browser:
        question = await ask(browser)
    async with browsing(agents={"it": launcher}, settings=settings) as browser:
        await answer(browser, answered(question, "yes"))
    async with browsing(agents={"it": launcher}, settings=settings) as browser:
        again = await answer(browser, answered(question, "yes"), run="r3")

    assert failure(again) == GIVEN
    assert launcher.launches == ["yes"]


async def test_of_an_answer_that_comes_to_two_servers_at_once_one_counts(tmp_path: Path) -> None:
    settings = Settings(threads=f"sqlite:{tmp_path}/threads.db")
    launcher: Any = Launcher()
    checked, go_on = asyncio.Event(), asyncio.Event()

    async def dawdle(run: RunInput) -> None:
        checked.set()
        await go_on.wait()

    async with (
        browsing(agents={"it": launcher}, settings=settings) as quick,
        browsing(
            agents={"it": launcher}, settings=settings, hooks=Hooks(before_request=dawdle)
        ) as slow,
    ):
        question = await ask(quick)
        second = asyncio.create_task(answer(slow, answered(question, "yes"), run="r3"))
        await checked.wait()
        first = await answer(quick, answered(question, "yes"))
        go_on.set()
        refused = await second
        reloaded = (await quick.connect(agent="it")).events()

    assert text_of(first) == "Launched."
    assert failure(refused) == GIVEN
    assert launcher.launches == ["yes"]
    assert text_of(reloaded) == "Ready.Launched."


async def test_an_answer_counts_once_even_if_its_run_fails() -> None:
    launcher: Any = Launcher(fails=True)
    async with browsing(agents={"it": launcher}) as browser:
        question = await ask(browser)
        await answer(browser, answered(question, "yes"))
        again = await answer(browser, answered(question, "yes"), run="r3")

    assert failure(again) == GIVEN
    assert launcher.launches == ["yes"]


async def test_an_answer_to_no_question_is_refused_and_the_question_stays_open() -> None:
    launcher: Any = Launcher()
    async with browsing(agents={"it": launcher}) as browser:
        question = await ask(browser)
        made_up = await answer(browser, answered({"id": "made-up"}, "yes"))
        real = await answer(browser, answered(question, "yes"), run="r3")

    assert failure(made_up).endswith(NO_QUESTION)
    assert text_of(real) == "Launched."


async def test_the_question_of_another_agent_is_refused_and_stays_open() -> None:
    asking: Any = Launcher()
    other: Any = Launcher()
    async with browsing(agents={"it": asking, "other": other}) as browser:
        question = await ask(browser)
        wrong = await answer(browser, answered(question, "yes"), agent="other")
        given_up = await answer(
            browser, answered(question, None, "cancelled"), agent="other", run="r3"
        )
        right = await answer(browser, answered(question, "yes"), run="r4")

    assert {failure(wrong), failure(given_up)} == {
        "The agent does not wait for this answer: another agent of this conversation has asked "
        "the question."
    }
    assert text_of(right) == "Launched."
    assert (asking.launches, other.launches) == (["yes"], [])


async def test_a_hook_may_have_another_agent_answer_all_that_one_is_asked() -> None:
    launcher: Any = Launcher()

    async def rename(run: RunInput) -> RunInput:
        return replace(run, agent="new")

    agents: Any = {"it": Launcher(), "new": launcher}
    async with browsing(agents=agents, hooks=Hooks(before_request=rename)) as browser:
        question = await ask(browser)
        events = await answer(browser, answered(question, "yes"))

    assert text_of(events) == "Launched."
    assert launcher.launches == ["yes"]


async def test_the_question_of_another_thread_is_none() -> None:
    launcher: Any = Launcher()
    async with browsing(agents={"it": launcher}) as browser:
        await ask(browser, thread="mine")
        foreign = await ask(browser, thread="other", run="r2")
        events = await answer(browser, answered(foreign, "yes"), thread="mine", run="r3")

    assert failure(events).endswith(NO_QUESTION)
    assert launcher.launches == []


async def test_the_question_of_another_user_is_none() -> None:
    def who(request: Any) -> str:
        return str(request.headers["authorization"])

    launcher: Any = Launcher()
    async with browsing(agents={"it": launcher}, authenticate=who) as browser:
        question = await ask(browser.signed_in("ada"))
        await ask(browser.signed_in("eve"), run="r2")
        events = await answer(browser.signed_in("eve"), answered(question, "yes"), run="r3")

    assert failure(events).endswith(NO_QUESTION)
    assert launcher.launches == []


async def test_a_question_that_the_conversation_has_left_behind_is_closed() -> None:
    launcher: Any = Launcher()
    async with browsing(agents={"it": launcher}) as browser:
        old = await ask(browser)
        new = await ask(browser, run="r2", messages=[user("Well?", "user-2")])
        late = await answer(browser, answered(old, "yes"), run="r3")
        await answer(browser, answered(new, "yes"), run="r4")

    assert failure(late) == GIVEN
    assert launcher.launches == ["yes"]


async def test_two_answers_to_one_question_in_a_request_are_refused() -> None:
    launcher: Any = Launcher()
    async with browsing(agents={"it": launcher}) as browser:
        question = await ask(browser)
        events = await answer(browser, answered(question, "yes"), answered(question, "no"))

    assert failure(events) == GIVEN
    assert launcher.launches == []


@in_one_test(
    ("payload", "reason"),
    [
        ({"approved": "yes"}, "$.approved: 'yes' is not of type 'boolean'"),
        ({}, "$: 'approved' is a required property"),
        ("perhaps", "$: 'perhaps' is not of type 'object'"),
        (None, "$: None is not of type 'object'"),
    ],
)
async def test_an_answer_of_the_wrong_form_is_refused_and_may_be_given_again(
    payload: Any, reason: str
) -> None:
    launcher: Any = Launcher(APPROVAL)
    async with browsing(agents={"it": launcher}) as browser:
        question = await ask(browser)
        wrong = await answer(browser, answered(question, payload))
        right = await answer(browser, answered(question, {"approved": True}), run="r3")

    assert failure(wrong) == f"The agent cannot go on with this answer: {reason}"
    assert text_of(right) == "Launched."
    assert launcher.launches == [{"approved": True}]


@in_one_test("payload", [{"approved": False, "reason": "Too windy"}, True])
async def test_an_answer_of_the_right_form_is_taken(payload: Any) -> None:
    launcher: Any = Launcher(APPROVAL)
    async with browsing(agents={"it": launcher}) as browser:
        question = await ask(browser)
        await answer(browser, answered(question, payload))

    assert launcher.launches == [payload]


async def test_a_cancelled_question_needs_no_form() -> None:
    launcher: Any = Launcher(APPROVAL)
    async with browsing(agents={"it": launcher}) as browser:
        question = await ask(browser)
        events = await answer(browser, answered(question, None, "cancelled"))

    assert text_of(events) == "Launched."


@in_one_test(
    "schema",
    [
        {"type": "nonsense"},
        {"$ref": "http://127.0.0.1:1/schema.json"},
        {"$ref": "#/nowhere"},
        {"$ref": "#"},
        {"type": "string", "pattern": "("},
        {"$schema": ["odd"], "type": "string"},
    ],
)
async def test_a_schema_that_is_none_is_not_the_persons_fault(
    schema: Any, caplog: pytest.LogCaptureFixture
) -> None:
    launcher: Any = Launcher(schema)
    async with browsing(agents={"it": launcher}) as browser:
        question = await ask(browser)
        events = await answer(browser, answered(question, "yes"))

    assert text_of(events) == "Launched."
    assert "responseSchema of an interrupt cannot be used" in caplog.text


@in_one_test(
    ("payload", "reason"),
    [
        ([{"seat": n} for n in range(3_000)], "} is not of type 'string'"),
        ([1] * 100_000, "1 is not of type 'string'"),
        (["7a", "7b", "7a"], "it has equal items"),
    ],
    ids=["objects", "numbers", "twice"],
)
async def test_no_answer_takes_long_to_be_checked(payload: Any, reason: str) -> None:
    launcher: Any = Launcher({"type": "array", "items": {"type": "string"}, "uniqueItems": True})
    async with browsing(agents={"it": launcher}) as browser:
        question = await ask(browser)
        began = process_time()
        events = await answer(browser, answered(question, payload))
        spent = process_time() - began
        await answer(browser, answered(question, ["7a", "7b"]), run="r3")

    assert spent < 2  # seconds; a fifth of one on a quiet machine
    assert reason in failure(events)
    assert launcher.launches == [["7a", "7b"]]


async def test_an_answer_that_is_too_deep_to_be_checked_is_not_taken() -> None:
    answer_of_a_tree: Any = {"seats": "two"}
    for _ in range(240):
        answer_of_a_tree = {"inner": answer_of_a_tree}
    fields = {"seats": {"type": "integer"}, "inner": {"$ref": "#"}}
    tree = {"allOf": [{"anyOf": [{"properties": fields}]}]}
    launcher: Any = Launcher(tree)
    async with browsing(agents={"it": launcher}) as browser:
        question = await ask(browser)
        events = await answer(browser, answered(question, answer_of_a_tree))
        shallow = await answer(browser, answered(question, {"inner": {"seats": 2}}), run="r3")

    assert failure(events) == "The agent cannot go on with this answer: $: it is nested too deeply."
    assert text_of(shallow) == "Launched."


async def test_a_page_that_reloads_sees_the_open_question_and_no_other() -> None:
    launcher: Any = Launcher(APPROVAL)
    async with browsing(agents={"it": launcher}) as browser:
        await ask(browser)
        question = await ask(browser, run="r2", messages=[user("Well?", "user-2")])
        reloaded = (await browser.connect(agent="it")).events()
        again = await answer(browser, answered(question, {"approved": True}), run="r3")
        later = (await browser.connect(agent="it")).events()

    ends = [event for event in reloaded if event["type"] == "RUN_FINISHED"]
    assert ["outcome" in end for end in ends] == [False, True]
    assert questions(reloaded) == [question]
    assert text_of(again) == "Launched."
    assert not any("interrupts" in event.get("outcome", {}) for event in later)


async def test_a_question_of_an_answer_that_failed_is_not_asked_again_after_a_reload() -> None:
    launcher: Any = Launcher(fails=True)
    async with browsing(agents={"it": launcher}) as browser:
        question = await ask(browser)
        await answer(browser, answered(question, "yes"))
        reloaded = (await browser.connect(agent="it")).events()

    assert not any("interrupts" in event.get("outcome", {}) for event in reloaded)
    assert reloaded[-1]["type"] == "RUN_ERROR"


async def test_a_question_stays_open_when_the_agent_itself_refuses_the_answer() -> None:
    class Picky(Launcher):
        async def run(self, run: RunInput) -> Events:
            if any(resume.payload == "hm" for resume in run.resume):
                raise Misuse("Yes or no?")
            async for event in super().run(run):
                yield event

    picky: Any = Picky()
    async with browsing(agents={"it": picky}) as browser:
        question = await ask(browser)
        for number in (2, 3):
            refused = await answer(browser, answered(question, "hm"), run=f"r{number}")
            assert failure(refused) == "Yes or no?"
        reloaded = (await browser.connect(agent="it")).events()
        again = await answer(browser, answered(question, "yes"), run="r4")

    assert questions(reloaded) == [question]
    assert text_of(again) == "Launched."


async def test_only_the_agent_knows_what_it_asked_in_a_run_that_is_stored_nowhere() -> None:
    launcher: Any = Launcher(APPROVAL)
    async with browsing(agents={"it": launcher}) as browser:
        resume = [answered({"id": "elsewhere"}, "yes")]
        body = {"threadId": "t", "runId": "r", "messages": [user()], "resume": resume}
        stranger = await browser.ask("POST", "/agent/it/ask", {**body, "tools": [], "context": []})

    assert text_of(stranger.events()) == "Launched."


async def test_in_a_thread_that_is_not_there_nothing_was_asked() -> None:
    launcher: Any = Launcher()
    async with browsing(agents={"it": launcher}) as browser:
        new = await answer(browser, answered({"id": "made-up"}, "yes"), thread="new")
        question = await ask(browser, thread="gone")
        await browser.ask("DELETE", "/threads/gone")
        gone = await answer(browser, answered(question, "yes"), thread="gone", run="r2")

    assert failure(new).endswith(NO_QUESTION)
    assert failure(gone).endswith(NO_QUESTION)
    assert launcher.launches == []


async def test_only_the_agent_knows_what_a_v1_page_answers_in_a_thread_that_is_not_there() -> None:
    launcher: Any = Launcher()
    async with browsing(agents={"it": launcher}) as browser:
        await v1(browser, answers=[("Launch?", "yes")])

    assert launcher.launches == ["yes"]


async def v1(
    browser: Browser,
    *messages: Any,
    answers: Sequence[tuple[str, str]] = (),
    agent: str | None = "it",
) -> Any:
    meta = [
        {"name": "LangGraphInterruptEvent", "value": value, "response": response}
        for value, response in answers
    ]
    request = chat(
        *messages,
        query=PLAIN,
        threadId="t",
        agentSession=agent and {"agentName": agent},
        metaEvents=meta,
    )
    return (await browser.ask("POST", "", request, {"accept": "application/json"})).json()


async def test_the_answer_of_a_v1_page_counts_once() -> None:
    launcher: Any = Launcher()
    async with browsing(agents={"it": launcher}) as browser:
        await v1(browser, v1_user())
        await v1(browser, answers=[("Launch?", "yes")])
        again = await v1(browser, answers=[("Launch?", "yes")])

    assert launcher.launches == ["yes"]
    [error] = again["errors"]
    assert error["message"] == GIVEN
    assert error["extensions"]["code"] == "MISUSE"


async def test_a_v1_page_answers_the_agent_that_a_chat_has_handed_over_to() -> None:
    launcher: Any = Launcher()
    other: Any = Launcher()
    agents: Any = {"it": launcher, "other": other}
    async with browsing(ScriptedAdapter(call("it")), agents=agents) as browser:
        await v1(browser, v1_user(), agent=None)
        wrong = await v1(browser, answers=[("Launch?", "yes")], agent="other")
        await v1(browser, answers=[("Launch?", "yes")])

    assert "another agent" in wrong["errors"][0]["message"]
    assert (launcher.launches, other.launches) == (["yes"], [])


async def test_the_answer_of_a_v1_page_has_the_form_that_is_asked_for() -> None:
    launcher: Any = Launcher(APPROVAL)
    async with browsing(agents={"it": launcher}) as browser:
        await v1(browser, v1_user())
        wrong = await v1(browser, answers=[("Launch?", "perhaps")])
        await v1(browser, answers=[("Launch?", '{"approved": true}')])

    assert "cannot go on with this answer" in wrong["errors"][0]["message"]
    assert launcher.launches == [{"approved": True}]


async def test_an_answer_to_a_question_of_older_agents_counts_once() -> None:
    class Old(Launcher):
        async def run(self, run: RunInput) -> Events:
            if run.resume:
                async for event in super().run(run):
                    yield event
            else:
                yield Custom(name="on_interrupt", value={"question": "Launch?"})

    old: Any = Old()
    command = {"resume": "yes", "interruptEvent": {"question": "Launch?"}}
    async with serving(CopilotRuntime(agents={"it": old}, settings=MEMORY).app(PATH)) as port:
        browser = Browser(port)
        await browser.run(agent="it", run="r1")
        reloaded = (await browser.connect(agent="it")).types()
        for run in ("r2", "r3"):
            await browser.run(agent="it", run=run, forwardedProps={"command": command})
        later = (await browser.connect(agent="it")).types()

    assert old.launches == ["yes"]
    assert ("CUSTOM" in reloaded, "CUSTOM" in later) == (True, False)


class Insistent:
    """Asks the same question until it has two answers, and leaves no other trace in the thread."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    async def run(self, run: RunInput) -> Events:
        self.answers += [resume.payload for resume in run.resume]
        if len(self.answers) < 2:
            yield Interrupt(interrupt_id=f"ask-{len(self.answers)}", value="Continue?")
        else:
            yield RunFinished(result="Done.")


@in_one_test("history", ["client", "server"])
async def test_an_equal_second_question_takes_an_equal_answer_with_the_same_run_id(
    history: Any,
) -> None:
    agent: Any = Insistent()
    command = {"resume": True, "interruptEvent": "Continue?"}
    fields = {"messages": []} if history == "server" else {}
    settings = Settings(threads="memory", history=history)
    async with browsing(agents={"it": agent}, settings=settings) as browser:
        replies = [await browser.run(agent="it", run="r1")]
        for _ in range(2):
            props = {"forwardedProps": {"command": command}}
            replies.append(await browser.run(agent="it", run="r1", **fields, **props))

    assert agent.answers == [True, True]
    assert replies[-1].events()[-1]["result"] == "Done."
