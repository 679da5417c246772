"""Several adapters in one: who is asked, when another is, and what the person sees of it."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest

from copilot_runtime.adapters.fallback import FallbackAdapter
from copilot_runtime.adapters.scripted import ScriptedAdapter, Turn, call, say
from copilot_runtime.api import ChatRequest, Parameters, RunInput
from copilot_runtime.api.events import (
    Custom,
    Event,
    Events,
    Raw,
    ReasoningContent,
    ReasoningEnd,
    ReasoningSignature,
    ReasoningStart,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)
from copilot_runtime.api.messages import MediaPart, TextMessage
from copilot_runtime.base.errors import (
    AuthenticationFailed,
    ConfigurationFailed,
    CopilotError,
    Misuse,
    NetworkError,
    RateLimited,
    Refused,
    RunStalled,
    ToolsRefused,
)
from tests.adapters.asking import HELLO, answer_to, failure_of
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

REQUEST = ChatRequest(messages=[HELLO])
OVERLOADED = NetworkError("Overloaded.", status_code=529)
WARNING = Custom(name="warning", value={"code": "seed"})


class Model(ScriptedAdapter):
    """A scripted adapter that says which model it was made for."""

    def __init__(self, model: str, *turns: Turn) -> None:
        super().__init__(*turns)
        self.model = model


def passing_errors() -> list[CopilotError]:
    return [
        *(OVERLOADED, RateLimited("Slowly.", retry_after=5), RunStalled("Silence.")),
        ToolsRefused("m does not support tools."),
    ]


@in_one_test("error", passing_errors(), ids=lambda e: type(e).__name__)
async def test_the_next_adapter_answers_when_one_fails_before_its_first_word(error: CopilotError):
    first, second = ScriptedAdapter(error), ScriptedAdapter(say("Hello"))

    assert await answer_to(FallbackAdapter(first, second), REQUEST) == say("Hello")
    assert first.requests == second.requests == [REQUEST]


@in_one_test(
    "error",
    [Refused("Filtered."), ConfigurationFailed("No such thing."), AuthenticationFailed("No.")],
    ids=lambda e: type(e).__name__,
)
async def test_what_is_wrong_for_all_is_not_asked_again(error: CopilotError):
    second = ScriptedAdapter(say("Hello"))

    _, raised = await failure_of(FallbackAdapter(ScriptedAdapter(error), second))

    assert raised is error
    assert second.requests == []


IMAGE = MediaPart(kind="image", source="data", value="R0lGODlh", mime_type="image/gif")


@in_one_test(
    "error",
    [
        Misuse("The model cannot take the image (image/gif): it takes no images."),
        ConfigurationFailed("m does not support image input."),
        ConfigurationFailed("messages[0].content must be a string"),
    ],
    ids=str,
)
async def test_a_model_that_takes_no_files_passes_them_on(error: CopilotError):
    look = TextMessage(id="u", role="user", content="Look", parts=[IMAGE])
    both = FallbackAdapter(ScriptedAdapter(error), ScriptedAdapter(say("Hello")))

    assert await answer_to(both, ChatRequest(messages=[look])) == say("Hello")
    _, raised = await failure_of(FallbackAdapter(ScriptedAdapter(error), ScriptedAdapter()))
    assert raised is error


async def test_a_wrong_key_can_be_a_reason_to_ask_the_next():
    adapters = ScriptedAdapter(AuthenticationFailed("No.")), ScriptedAdapter(say("Hello"))

    both = FallbackAdapter(*adapters, also=(AuthenticationFailed,))

    assert await answer_to(both, REQUEST) == say("Hello")


THOUGHT = [ReasoningStart(message_id="r"), ReasoningContent(message_id="r", content="Hm.")]
SPOKEN = [say("Hel")[:2], call("get_time")[:1], THOUGHT]


@in_one_test("spoken", SPOKEN, ids=["text", "call", "thought"])
async def test_a_failure_after_the_first_word_is_the_persons_to_see(spoken: Sequence[Event]):
    second = ScriptedAdapter(say("Hello"))

    seen, raised = await failure_of(FallbackAdapter(ScriptedAdapter([*spoken, OVERLOADED]), second))

    assert (seen, raised) == (list(spoken), OVERLOADED)
    assert second.requests == []


NO_WORDS: dict[str, Sequence[Event]] = {
    "a wish left out": [WARNING],
    "another custom event": [Custom(name="openaiAssistantAPI", value={"threadId": "t"})],
    "an event of the provider": [Raw(event={"type": "ping"}, source="provider")],
    "a count": [Usage(model="m")],
    "an empty text": [
        TextMessageStart(message_id="lost"),
        TextMessageContent(message_id="lost", content=""),
        TextMessageEnd(message_id="lost"),
    ],
    "a thought kept secret": [
        ReasoningStart(message_id="lost"),
        ReasoningContent(message_id="lost", content=""),
        ReasoningSignature(entity_id="lost", value="anthropic:c2ln"),
        ReasoningEnd(message_id="lost"),
    ],
}


@in_one_test("case", NO_WORDS)
async def test_nothing_is_seen_of_an_adapter_that_never_said_a_word(case: str):
    first = ScriptedAdapter([*NO_WORDS[case], OVERLOADED])

    both = FallbackAdapter(first, ScriptedAdapter([WARNING, *say("Hello")]))

    assert await answer_to(both, REQUEST) == [WARNING, *say("Hello")]


async def test_an_answer_without_a_word_is_an_answer():
    second = ScriptedAdapter(say("Hello"))

    both = FallbackAdapter(ScriptedAdapter([Usage(model="m")]), second)

    assert await answer_to(both, REQUEST) == [Usage(model="m")]
    assert second.requests == []


async def test_the_last_error_is_raised_when_nobody_answers():
    last = RateLimited("Slowly.", retry_after=5)

    seen, raised = await failure_of(
        FallbackAdapter(ScriptedAdapter(OVERLOADED), ScriptedAdapter(last))
    )

    assert (seen, raised) == ([], last)


async def test_weights_say_how_often_an_adapter_is_the_first():
    async def firsts(seed: int) -> list[int]:
        adapters = [Counted() for _ in range(2)]
        both = FallbackAdapter(*adapters, weights=[9, 1], seed=seed)
        for _ in range(400):
            await answer_to(both, REQUEST)
        return [adapter.asked for adapter in adapters]

    first = await firsts(1)

    assert sum(first) == 400
    assert 20 <= first[1] <= 60
    assert await firsts(1) == first


async def test_weights_leave_nobody_out_when_one_fails():
    adapters = [ScriptedAdapter(OVERLOADED), ScriptedAdapter(say("Hello"))]

    both = FallbackAdapter(*adapters, weights=[1000, 1], seed=1)

    assert await answer_to(both, REQUEST) == say("Hello")


@in_one_test("weights", [[1], [1, 0], [1, -1], [1, float("nan")]])
def test_weights_that_make_no_sense_are_refused(weights: list[float]):
    with pytest.raises(ConfigurationFailed):
        FallbackAdapter(ScriptedAdapter(), ScriptedAdapter(), weights=weights)


def test_no_adapter_at_all_is_refused():
    with pytest.raises(ConfigurationFailed):
        FallbackAdapter()


async def test_an_agent_may_have_an_adapter_of_its_own():
    usual, poets = ScriptedAdapter(say("Hello")), ScriptedAdapter(say("O Hello"))
    adapter = FallbackAdapter(usual, by_agent={"poet": poets})

    assert await answer_to(adapter, ChatRequest(messages=[HELLO], agent="poet")) == say("O Hello")
    assert await answer_to(adapter, ChatRequest(messages=[HELLO], agent="cook")) == say("Hello")


async def test_a_model_the_client_names_is_asked_of_the_adapter_that_has_it():
    small, large = Model("small", say("Hi")), Model("large", OVERLOADED)
    wish = ChatRequest(messages=[HELLO], parameters=Parameters(model="large"))

    assert await answer_to(FallbackAdapter(small, large), wish) == say("Hi")
    assert [adapter.requests[0].parameters.model for adapter in (large, small)] == ["large", None]


async def test_whoever_leaves_early_closes_the_adapter_that_speaks():
    closed: list[str] = []

    class Talker:
        async def stream(self, request: ChatRequest) -> Events:
            try:
                for event in say(["Hel", "lo"]):
                    yield event
            finally:
                closed.append("talker")

    async with aclosing(FallbackAdapter(Talker()).stream(REQUEST)) as events:
        await anext(events)
        assert closed == []

    assert closed == ["talker"]


async def test_all_adapters_are_closed_once_even_if_one_cannot():
    broken, fine = Broken(), ScriptedAdapter()
    adapter = FallbackAdapter(broken, fine, Nothing(), by_agent={"a": fine})

    with pytest.raises(OSError, match="stuck"):
        await adapter.aclose()

    assert fine.closed


def test_what_an_adapter_cannot_do_is_known_before_the_run():
    adapter = FallbackAdapter(Nothing(), ScriptedAdapter(), by_agent={"poet": ScriptedAdapter()})

    with pytest.raises(Misuse):
        adapter.check(RunInput(thread_id="t", run_id="r", messages=[]))
    adapter.check(RunInput(thread_id="t", run_id="r", messages=[], agent="poet"))


class Counted:
    """Counts how often it was asked."""

    asked = 0

    async def stream(self, request: ChatRequest) -> Events:
        self.asked += 1
        yield Usage(model="m")


class Broken(ScriptedAdapter):
    async def aclose(self) -> None:
        raise OSError("stuck")


class Nothing:
    """Can do nothing, and has nothing to close."""

    def check(self, run: RunInput) -> None:
        raise Misuse("No.")

    def stream(self, request: ChatRequest) -> Any:
        raise NotImplementedError
