"""What every adapter makes of refusals, broken answers and silences, whoever they come from."""

import asyncio
import logging
from contextlib import aclosing, suppress
from dataclasses import replace

import pytest

from copilot_runtime.api import Action
from copilot_runtime.api.events import TextMessageContent, Usage
from copilot_runtime.api.messages import ActionExecutionMessage, ResultMessage
from copilot_runtime.base.errors import (
    AuthenticationFailed,
    ConfigurationFailed,
    CopilotError,
    InvalidAnswer,
    LimitExceeded,
    NetworkError,
    RateLimited,
    Refused,
    RunStalled,
)
from tests.adapters.asking import (
    HELLO,
    answer,
    answer_of,
    asking,
    failure,
    text_in,
    thought_in,
)
from tests.adapters.contract.conftest import Clock
from tests.adapters.contract.fakes import (
    FAKES,
    KEY,
    MODEL,
    Breaks,
    CallArgs,
    CallStart,
    ErrorInStream,
    Fails,
    Fake,
    Ping,
    Say,
    Silence,
    Stop,
    Think,
    Tokens,
    Waits,
    make_fake,
    needs,
)
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

STATUSES: dict[int, type[CopilotError]] = {
    400: ConfigurationFailed,
    401: AuthenticationFailed,
    403: AuthenticationFailed,
    404: ConfigurationFailed,
    408: NetworkError,
    409: NetworkError,
    413: LimitExceeded,
    422: ConfigurationFailed,
    429: RateLimited,
    500: NetworkError,
    503: NetworkError,
    529: NetworkError,
}


@in_one_test("status", STATUSES)
async def test_a_refusal_is_the_error_that_its_status_means(fake: Fake, status: int):
    fake.plays(Fails(status))
    seen, error = await failure(fake, max_retries=0)
    assert (seen, type(error), error.status_code) == ([], STATUSES[status], status)
    assert "No, says the fake." in error.message


async def test_an_unknown_model_is_named(fake: Fake):
    fake.plays(Fails(404))
    error = (await failure(fake))[1]
    assert (type(error), MODEL in error.message) == (ConfigurationFailed, True)


async def test_a_conversation_too_long_is_told_from_other_mistakes(fake: Fake):
    fake.plays(Fails(400, "context_length", message="The prompt is too long."))
    error = (await failure(fake))[1]
    assert (type(error), error.code) == (LimitExceeded, "LIMIT_EXCEEDED")
    assert error.message.startswith(f"The conversation is too long for {MODEL!r}.")


async def test_a_question_that_a_filter_refuses_is_refused(fake: Fake):
    needs(fake, "content_filter")
    fake.plays(Fails(400, "content_filter"))
    assert isinstance((await failure(fake))[1], Refused)


async def test_an_answer_that_a_filter_stops_is_refused_and_its_text_kept(fake: Fake):
    needs(fake, "content_filter")
    fake.plays(Say("How to"), Stop("content_filter"))
    seen, error = await failure(fake)
    assert (text_in(seen), type(error)) == ("How to", Refused)


async def test_a_rate_limit_says_how_long_to_wait(fake: Fake):
    needs(fake, "retry_after")
    fake.plays(Fails(429, retry_after=120))
    error = (await failure(fake))[1]
    assert isinstance(error, RateLimited)
    assert error.retry_after == 120


async def test_model_and_request_are_named_for_the_log(fake: Fake):
    fake.plays(Fails(400))
    hint = (await failure(fake))[1].hint or ""
    assert f"Model: {MODEL!r}." in hint
    assert "Request id: req-7." in hint


@in_one_test("status", [400, 401, 500])
async def test_the_key_is_in_no_error_and_no_log(
    fake: Fake, status: int, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    fake.plays(Fails(status, message=f"Wrong key: {KEY}."))
    adapter = fake.adapter(max_retries=0)
    with pytest.raises(CopilotError) as caught:
        await answer_of(adapter)
    error = caught.value
    assert KEY not in f"{error!r} {error.message} {error.hint} {adapter!r} {caplog.text}"


@in_one_test("status", [408, 409, 429, 500, 503, 529])
async def test_what_may_pass_is_tried_again(fake: Fake, status: int):
    needs(fake, "http")
    fake.plays(Fails(status, retry_after=0.001))
    fake.plays(Say("Hi"), Stop())
    assert text_in(await answer(fake)) == "Hi"
    assert len(fake.asked) == 2


@in_one_test("status", [400, 401, 403, 404, 413, 422])
async def test_what_cannot_pass_is_asked_once(fake: Fake, status: int):
    fake.plays(Fails(status))
    await failure(fake)
    assert len(fake.asked) == 1


async def test_after_enough_tries_the_refusal_counts(fake: Fake):
    needs(fake, "http")
    fake.plays(Fails(503, retry_after=0.001))
    error = (await failure(fake, max_retries=2))[1]
    assert (type(error), len(fake.asked)) == (NetworkError, 3)


async def test_after_the_first_word_nothing_is_tried_again(fake: Fake):
    fake.plays(Say("Par"), Breaks())
    fake.plays(Say("Never"), Stop())
    seen, error = await failure(fake)
    assert (text_in(seen), type(error), len(fake.asked)) == ("Par", NetworkError, 1)


async def test_an_answer_that_ends_without_a_reason_is_an_error(fake: Fake):
    needs(fake, "http")
    fake.plays(Say("Par"))
    seen, error = await failure(fake)
    assert (text_in(seen), type(error)) == ("Par", NetworkError)
    assert error.message.endswith("API error: Premature close")


async def test_an_answer_of_nothing_is_asked_for_again(fake: Fake):
    if fake.name == "openai_assistants":
        pytest.skip("What is sent twice stands in the thread twice.")
    fake.plays(Tokens(input=9, output=0), Stop())
    fake.plays(Say("Hi"), Tokens(input=9, output=1), Stop())
    events = await answer(fake)
    assert (text_in(events), len(fake.asked)) == ("Hi", 2)
    inputs = [event.input_tokens for event in events if isinstance(event, Usage)]
    assert not inputs or inputs == [9, 9]


async def test_an_answer_of_nothing_again_is_an_error(fake: Fake):
    times = 1 if fake.name == "openai_assistants" else 2  # as above
    fake.plays(Stop())
    _, error = await failure(fake)
    assert (type(error), len(fake.asked)) == (InvalidAnswer, times)
    assert error.message.endswith(" API error: The model's answer is empty.")


async def test_a_limit_that_was_reached_after_thoughts_alone_is_an_error_that_says_so(fake: Fake):
    needs(fake, "reasoning")
    fake.plays(Think("Hmm."), Stop("length"))
    seen, error = await failure(fake)
    assert (thought_in(seen), type(error), len(fake.asked)) == ("Hmm.", InvalidAnswer, 1)
    assert error.message.endswith("The limit of the answer was reached before it had begun.")


async def test_after_an_action_of_the_page_a_model_may_have_nothing_to_add(fake: Fake):
    needs(fake, "calls")
    call = ActionExecutionMessage(id="c1", name="paint", arguments="{}")
    result = ResultMessage(id="r1", call_id="c1", name="paint", result="painted")
    request = replace(asking(HELLO, call, result), actions=[Action(name="paint")])
    fake.plays(Stop())
    assert text_in(await answer(fake, request)) == ""
    assert len(fake.asked) == 1


async def test_a_call_cut_short_never_ends(fake: Fake):
    needs(fake, "calls", "arguments_in_pieces")
    fake.plays(CallStart("call_1", "setColor"), CallArgs("call_1", '{"col'), Breaks())
    seen, error = await failure(fake)
    assert isinstance(error, NetworkError)
    assert not [event for event in seen if event.type == "action_execution_end"]


async def test_an_error_in_mid_stream_keeps_the_text(fake: Fake):
    needs(fake, "errors_in_stream")
    fake.plays(Say("Par"), ErrorInStream("server_error", "It fell over."))
    seen, error = await failure(fake)
    assert (text_in(seen), type(error)) == ("Par", NetworkError)
    assert "It fell over." in error.message


async def test_an_error_before_the_first_word_is_one_too(fake: Fake):
    needs(fake, "errors_in_stream")
    fake.plays(ErrorInStream("overloaded"))
    seen, error = await failure(fake)
    assert (text_in(seen), isinstance(error, NetworkError)) == ("", True)


@in_one_test("failing", [ErrorInStream("overloaded"), Breaks()])
async def test_an_answer_that_fails_before_its_first_word_is_asked_for_again(
    fake: Fake, failing: ErrorInStream | Breaks
):
    needs(fake, "http", "errors_in_stream")
    if fake.name == "openai_assistants":
        pytest.skip("What is sent twice stands in the thread twice.")
    fake.plays(failing)
    fake.plays(failing)
    fake.plays(Say("Hi"), Stop())
    assert text_in(await answer(fake, max_retries=2)) == "Hi"
    assert len(fake.asked) == 3


async def test_a_rate_limit_in_mid_stream_is_one(fake: Fake):
    needs(fake, "errors_in_stream")
    fake.plays(Say("Par"), ErrorInStream("rate_limit"))
    assert isinstance((await failure(fake))[1], RateLimited)


async def test_leaving_an_answer_closes_its_connection(fake: Fake):
    fake.plays(Say("Hi"), Silence())
    async with aclosing(fake.adapter().stream(asking())) as events:
        async for _ in events:
            break
    await fake.until_closed()


async def test_cancelling_before_the_first_word_closes_the_connection(fake: Fake):
    fake.plays(Silence())
    task = asyncio.create_task(answer(fake))
    await fake.until_asked(1)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await fake.until_closed()


async def test_a_first_word_that_never_comes_is_an_error(fake: Fake, clock: Clock):
    fake.plays(Silence())
    waiting = asyncio.create_task(failure(fake, first_token_timeout=60))
    await fake.until_asked(1)
    clock.forward(61)
    error = (await waiting)[1]
    assert (type(error), len(fake.asked)) == (RunStalled, 1)
    assert error.message.endswith("No first word for 60 seconds.")
    await fake.until_closed()


async def test_signs_of_life_are_no_first_word(fake: Fake, clock: Clock):
    needs(fake, "pings")
    fake.plays(Ping(), Silence())
    fake.plays(Say("Hi"), Stop())
    waiting = asyncio.create_task(failure(fake, first_token_timeout=60))
    await fake.until_asked(1)
    await answer(fake)  # by now the sign of life has arrived
    clock.forward(61)
    error = (await waiting)[1]
    assert error.message.endswith("No first word for 60 seconds.")


async def test_after_the_first_word_its_limit_is_past(fake: Fake, clock: Clock):
    late = asyncio.Event()
    fake.plays(Say("Hel"), Waits(late), Say("lo"), Stop())
    heard: list[str] = []

    async for event in fake.adapter(first_token_timeout=60).stream(asking()):
        if isinstance(event, TextMessageContent):
            heard.append(event.content)
            if not late.is_set():
                clock.forward(61)
                late.set()

    assert heard == ["Hel", "lo"]


async def test_a_silence_in_the_middle_is_an_error(fake: Fake, clock: Clock):
    fake.plays(Say("Hi"), Silence())
    adapter = fake.adapter(first_token_timeout=5, idle_timeout=60)

    with pytest.raises(RunStalled, match=r"(?m)No answer for 60 seconds\.$"):
        async for event in adapter.stream(asking()):
            if isinstance(event, TextMessageContent):
                clock.forward_soon(61)


@in_one_test("name", FAKES)
async def test_nobody_listening_is_explained(name: str):
    async with make_fake(name) as fake:
        needs(fake, "http")
        adapter = fake.adapter(max_retries=0)
    with pytest.raises(NetworkError, match=r"Connection error\. The connection was refused\."):
        await answer_of(adapter)
    await adapter.aclose()


async def test_an_answer_that_is_none_is_explained(fake: Fake):
    needs(fake, "http")
    fake.plays()
    seen, error = await failure(fake)
    assert (seen, isinstance(error, NetworkError)) == ([], True)
