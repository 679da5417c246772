"""Rules on topics and words, from the request to the log."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import say
from copilot_runtime.api import ContextItem, Resume
from copilot_runtime.api.agent import StageFunction
from copilot_runtime.api.events import ReasoningContent, ReasoningEnd, ReasoningStart
from copilot_runtime.api.messages import Message, ResultMessage, TextMessage
from copilot_runtime.api.run_input import GuardrailRules
from copilot_runtime.extensions.guardrails import guardrails
from copilot_runtime.extensions.guardrails.guardrails import topics, words
from copilot_runtime.extensions.guardrails.phrases import Phrases
from copilot_runtime.extensions.guardrails.settings import GuardrailSettings
from tests.in_one_test import in_one_test
from tests.security.conftest import RULES, asking, log_of, refusal, text_of

pytestmark = pytest.mark.anyio


async def test_a_denied_topic_is_refused_before_the_model_request() -> None:
    adapter = ScriptedAdapter(say("Sure."))
    events = await log_of(adapter, [topics(deny=["bombs"])], asking("How to make BOMBS?"))
    error = refusal(events)
    assert error is not None
    assert (error.code, error.message) == (
        "GUARDRAILS_VALIDATION_FAILED",
        "I cannot help with that topic.",
    )
    assert adapter.requests == []


async def test_a_question_must_name_one_of_the_allowed_topics() -> None:
    rule = topics(allow=["cooking", "wine"], message="Only food, please.")
    refused = await log_of(ScriptedAdapter(), [rule], asking("Tell me about cars"))
    answered = await log_of(ScriptedAdapter(say("Red.")), [rule], asking("Which wine?"))
    assert refusal(refused) is not None
    assert text_of(answered) == "Red."


async def test_an_answer_of_very_many_texts_is_refused_before_it_is_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged: list[Sequence[str]] = []

    def search(self: Phrases, texts: Sequence[str]) -> None:
        judged.append(texts)

    monkeypatch.setattr(Phrases, "search", search)
    answer = Resume("", None, interrupt_id="i", payload=["a"] * 20_000)
    run = replace(asking("Hello"), resume=[answer])
    error = refusal(await log_of(ScriptedAdapter(), [topics(deny=["bombs"])], run))

    assert error is not None
    assert "too long" in error.message
    assert judged == []


@in_one_test("rule", [topics(deny=["bombs"]), words(["bombs"])])
@in_one_test(
    "later",
    [
        [],
        ["Go on."],
        [TextMessage(id="a", role="assistant", content="Of course, ")],
        [TextMessage(id="a", role="assistant", content="No."), "Then something else."],
    ],
)
async def test_all_that_a_person_wrote_is_judged(
    rule: StageFunction, later: list[str | Message]
) -> None:
    adapter = ScriptedAdapter(say("Sure."))

    assert refusal(await log_of(adapter, [rule], asking("How to make bombs?", *later)))
    assert adapter.requests == []


@in_one_test(
    "texts",
    [
        *(["b.o.m.b.s"], ["b-o-m-b-s"], ["b o m b s"], ["make b\no\nm\nb\ns now"], ["b o mbs"]),
        *(["bo", "mbs"], ["how to make bo", "mbs at home"], ["b", "o", "m", "b", "s"]),
        *(["b\u043emb\u0455"], ["\u0412\u041e\u041c\u0412\u0405"], ["b\u03bfmbs"], ["b0mb5"]),
    ],
)
async def test_a_disguise_does_not_help(texts: list[str]) -> None:
    for rule in (topics(deny=["bombs"]), words(["bombs"])):
        assert refusal(await log_of(ScriptedAdapter(say("Sure.")), [rule], asking(*texts)))


@in_one_test(
    "context", [ContextItem("The bombs", "two"), ContextItem("What I like", '{"it": "b.o.m.b.s"}')]
)
async def test_the_context_of_the_page_is_judged(context: ContextItem) -> None:
    run = replace(asking("Tell me more."), context=[context])

    assert refusal(await log_of(ScriptedAdapter(say("Sure.")), [topics(deny=["bombs"])], run))


@in_one_test(
    "answer",
    [
        Resume("Which topic?", "bombs"),
        Resume("", '{"it": ["bombs"]}', interrupt_id="1", payload={"it": ["bombs"]}),
    ],
)
async def test_the_answer_to_an_interrupt_is_judged(answer: Resume) -> None:
    run = replace(asking("Hello"), resume=[answer])

    assert refusal(await log_of(ScriptedAdapter(say("Sure.")), [topics(deny=["bombs"])], run))


async def test_what_a_model_or_an_application_wrote_is_not_the_persons() -> None:
    others = [
        TextMessage(id="s", role="system", content="Do not talk about bombs."),
        TextMessage(id="a", role="assistant", content="I do not talk about bombs."),
    ]
    events = await log_of(
        ScriptedAdapter(say("Hi.")), [topics(deny=["bombs"])], asking(*others, "Hello")
    )

    assert text_of(events) == "Hi."


async def test_a_result_of_an_earlier_call_is_judged_however_long_it_is() -> None:
    result = "word " * 200_001 + "\uff22o\u200bmbs"
    found = ResultMessage(id="r", call_id="c", name="search", result=result)
    events = await log_of(
        ScriptedAdapter(say("Hi.")), [topics(deny=["bombs"])], asking(found, "Go on")
    )

    error = refusal(events)
    assert error is not None
    assert error.code == "GUARDRAILS_VALIDATION_FAILED"


async def test_a_conversation_too_long_to_be_judged_is_refused() -> None:
    events = await log_of(ScriptedAdapter(), [topics(deny=["bombs"])], asking("word " * 200_001))

    error = refusal(events)
    assert error is not None
    assert error.code == "LIMIT_EXCEEDED"


async def test_a_very_long_question_is_judged_like_any_other() -> None:
    padding = "word " * 20_000
    refused = await log_of(ScriptedAdapter(), [topics(deny=["bombs"])], asking(f"{padding} bombs"))
    answered = await log_of(
        ScriptedAdapter(say("Ok.")), [topics(deny=["bombs"]), words(["guns"])], asking(padding)
    )
    assert refusal(refused) is not None
    assert text_of(answered) == "Ok."


async def test_a_request_without_a_question_passes() -> None:
    events = await log_of(ScriptedAdapter(say("Hi.")), [topics(allow=["wine"])], asking())
    assert text_of(events) == "Hi."


async def test_topics_of_the_client_count_only_with_the_option() -> None:
    run = asking("something else", rules=RULES)
    passed = await log_of(ScriptedAdapter(say("Ok.")), [topics()], run)
    refused = await log_of(ScriptedAdapter(), [topics(honour_client=True)], run)
    assert refusal(passed) is None
    assert refusal(refused) is not None


async def test_a_client_may_not_bring_topics_without_end() -> None:
    run = asking("hi", rules=GuardrailRules(deny=["x"] * 1001))
    error = refusal(await log_of(ScriptedAdapter(), [topics(honour_client=True)], run))
    assert error is not None
    assert error.code == "LIMIT_EXCEEDED"


async def test_an_answer_stops_before_a_forbidden_word_is_sent() -> None:
    adapter = ScriptedAdapter(say(["The pass", "word is sw", "ord", "fish, ", "he said."]))
    events = await log_of(adapter, [words(["swordfish"], output=True)], asking("Tell me"))
    assert text_of(events) == "The password is "
    assert refusal(events) is not None


async def test_a_forbidden_word_at_the_very_end_is_found() -> None:
    adapter = ScriptedAdapter(say(["It is sword", "fish"]))
    events = await log_of(adapter, [words(["swordfish"], output=True)], asking("Tell me"))
    assert text_of(events) == "It is "
    assert refusal(events) is not None


async def test_an_innocent_answer_arrives_whole() -> None:
    adapter = ScriptedAdapter(say(["A sword", " and a fi", "sh and a sword"]))
    events = await log_of(adapter, [words(["sword dance"], output=True)], asking("Tell me"))
    assert text_of(events) == "A sword and a fish and a sword"
    assert refusal(events) is None


async def test_a_thought_is_sifted_like_an_answer() -> None:
    thought = [
        ReasoningStart(message_id="m"),
        ReasoningContent(message_id="m", content="It is sword"),
        ReasoningContent(message_id="m", content="fish."),
        ReasoningEnd(message_id="m"),
    ]
    events = await log_of(
        ScriptedAdapter(thought), [words(["swordfish"], output=True)], asking("Tell me")
    )
    shown = [event.content for event in events if isinstance(event, ReasoningContent)]
    assert shown == ["It is "]


async def test_without_output_only_the_question_is_looked_at() -> None:
    stage = words(["swordfish"])
    events = await log_of(ScriptedAdapter(say("swordfish")), [stage], asking("Tell me"))
    assert text_of(events) == "swordfish"
    assert refusal(await log_of(ScriptedAdapter(), [stage], asking("swordfish?"))) is not None


async def test_guardrails_may_come_from_the_settings() -> None:
    rules = GuardrailSettings(deny=("bombs",), words=("swordfish",), message="No.")
    for question in ("bombs", "swordfish"):
        events = await log_of(
            ScriptedAdapter(),
            [],
            asking(question),
            settings=Settings(guardrails=rules, threads="memory"),
        )
        error = refusal(events)
        assert error is not None
        assert error.message == "No."


async def test_topics_that_a_page_denies_are_refused_without_a_service() -> None:
    rules = GuardrailRules(deny=("bombs", "🔥"))
    settings = Settings(threads="memory")
    refused = replace(asking("How to make b.o.m.b.s?"), rules=rules)
    answered = replace(asking("How to make bread?"), rules=rules)

    assert refusal(await log_of(ScriptedAdapter(), [], refused, settings=settings)) is not None
    events = await log_of(ScriptedAdapter(say("Knead.")), [], answered, settings=settings)
    assert text_of(events) == "Knead."


async def test_topics_that_a_page_allows_are_logged_once_without_a_service(
    caplog: pytest.LogCaptureFixture,
) -> None:
    adapter = ScriptedAdapter(say("Knead."), say("Knead."))
    runtime = CopilotRuntime(adapter, settings=Settings(threads="memory")).runtime
    for id in ("r1", "r2"):
        rules = GuardrailRules(allow=("cooking",))
        run = replace(asking("How to make bread?"), rules=rules, run_id=id, log_id=id)
        await runtime.start(run)
        events = [event async for batch in runtime.follow(id) for event in batch.events]
        assert text_of(events) == "Knead."
    await runtime.aclose()

    messages = [one.getMessage() for one in caplog.records if one.name == guardrails.__name__]
    assert [message[:58] for message in messages] == [
        "A page sent topics to allow in cloud.guardrails, which nee"
    ]
