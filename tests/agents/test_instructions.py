"""Instructions and parameters of a model: what it is asked, and what is said of wrong ones."""

import asyncio
import json
import logging
from collections.abc import Mapping
from traceback import format_exception
from typing import Any
from urllib.parse import quote

import pytest

from copilot_runtime import action
from copilot_runtime.adapters.fallback import FallbackAdapter
from copilot_runtime.adapters.scripted import ScriptedAdapter, call, say
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import ChatRequest, ContextItem, Parameters, RunInput
from copilot_runtime.api.events import Event
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import (
    ConfigurationFailed,
    CopilotError,
    Misuse,
    NetworkError,
    Refused,
)
from tests.in_one_test import in_one_test
from tests.runs import run_input

pytestmark = pytest.mark.anyio

PROMPT = "You are the clerk of a bookshop. The password is xylophone-42."
QUESTION = TextMessage(id="u", role="user", content="Hi")
protocols = pytest.mark.parametrize("follow_up", ["client", "server"])


@action
def look_up(title: str) -> str:
    """Look a book up."""
    return f"{title} is on the shelf."


async def events_of(agent: DirectAgent, **more: Any) -> list[Event]:
    return [event async for event in agent.run(run_input(**more))]


async def asked(instructions: Any, **more: Any) -> ChatRequest:
    adapter = ScriptedAdapter(say("Hello"))
    await events_of(DirectAgent(adapter, instructions=instructions), **more)
    return adapter.requests[0]


async def texts(instructions: Any, **more: Any) -> list[tuple[str, str]]:
    """Return role and text of each message that the model gets."""
    request = await asked(instructions, **more)
    return [(m.role, m.content) for m in request.messages if isinstance(m, TextMessage)]


@protocols
async def test_the_instructions_are_the_first_thing_the_model_reads(follow_up: Any) -> None:
    assert await texts(PROMPT, follow_up=follow_up) == [("system", PROMPT), ("user", "Hi")]


@protocols
async def test_a_function_makes_them_of_the_run_sync_or_async(follow_up: Any) -> None:
    def sync(run: RunInput) -> str:
        return f"You serve {run.user}."

    async def later(run: RunInput) -> str:
        await asyncio.sleep(0)
        return sync(run)

    for function in (sync, later):
        first = (await texts(function, follow_up=follow_up, user="ann"))[0]
        assert first == ("system", "You serve ann.")


def say_nothing(run: RunInput) -> None:
    """Make no instructions."""


def take_nothing() -> str:
    return PROMPT


def take_two(run: RunInput, page: str) -> str:
    return PROMPT


@protocols
@in_one_test("nothing", [None, "", "  \n", say_nothing])
async def test_no_instructions_are_no_message(follow_up: Any, nothing: Any) -> None:
    assert await texts(nothing, follow_up=follow_up) == [("user", "Hi")]


async def test_a_function_is_called_once_in_a_run_and_stays_before_every_turn() -> None:
    runs: list[RunInput] = []

    def count(run: RunInput) -> str:
        runs.append(run)
        return PROMPT

    adapter = ScriptedAdapter(call("look_up", {"title": "Emma"}), say("It is there."))
    await events_of(DirectAgent(adapter, instructions=count), actions=[look_up])

    assert len(runs) == 1
    assert [request.messages[0] for request in adapter.requests] == [
        TextMessage(id="system-r", role="system", content=PROMPT)
    ] * 2


async def test_instructions_context_and_state_are_one_message_which_every_model_takes() -> None:
    context = [ContextItem("page", "cart")]
    adapter = ScriptedAdapter(say("Hello"))
    await events_of(DirectAgent(adapter, instructions=PROMPT), context=context)

    (system, question) = adapter.requests[0].messages
    assert isinstance(system, TextMessage)
    assert system.content == f"{PROMPT}\n\n## Context from the application\n\npage:\ncart"
    assert question == QUESTION


@protocols
@in_one_test("role", ["system", "developer"])
async def test_what_a_page_instructs_stands_after_the_servers(follow_up: Any, role: Any) -> None:
    page = TextMessage(id="p", role=role, content="Answer in verse.")
    adapter = ScriptedAdapter(say("Hello"))
    run = RunInput(thread_id="t", run_id="r", messages=[page, QUESTION], follow_up=follow_up)
    agent = DirectAgent(adapter, instructions=PROMPT)
    _ = [event async for event in agent.run(run)]

    system = TextMessage(id="system-r", role="system", content=PROMPT)
    assert adapter.requests[0].messages == [system, page, QUESTION]


async def test_the_run_itself_never_has_them() -> None:
    seen: list[RunInput] = []
    run = run_input()
    agent = DirectAgent(ScriptedAdapter(say("Hello")), instructions=lambda r: seen.append(r) or "x")
    _ = [event async for event in agent.run(run)]

    assert seen == [run]
    assert run.messages == [QUESTION]


@protocols
async def test_a_function_that_fails_ends_the_run_with_a_sentence_and_the_log_says_why(
    follow_up: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def read_prompt(run: RunInput) -> str:
        raise OSError("/srv/prompts/clerk.md is gone")

    with pytest.raises(CopilotError) as caught:
        await asked(read_prompt, follow_up=follow_up)

    assert caught.value.message == (
        "The instructions for this answer could not be created. The server's log says why."
    )
    assert isinstance(caught.value.__cause__, OSError)
    assert "read_prompt" in caplog.text
    assert "clerk.md is gone" in caplog.text


@in_one_test("wrong", [7, ["Be brief."], b"Be brief.", {"text": "Be brief."}])
async def test_a_function_that_returns_no_text_ends_the_run(wrong: Any) -> None:
    async def prompt(run: RunInput) -> Any:
        return wrong

    with pytest.raises(ConfigurationFailed) as caught:
        await asked(prompt)

    assert "Be brief" not in caught.value.message
    kind = type(wrong).__name__
    assert caught.value.hint == f"The function 'prompt' returned a {kind}, and not text or None."


async def test_a_function_may_refuse_a_run_in_its_own_words() -> None:
    def refuse(run: RunInput) -> str:
        raise Refused("The shop is closed.")

    with pytest.raises(Refused, match="The shop is closed"):
        await asked(refuse)


@in_one_test("ending", [SystemExit, KeyboardInterrupt])
async def test_a_function_that_ends_the_process_ends_the_run_only(
    ending: type[BaseException],
) -> None:
    async def leave(run: RunInput) -> str:
        raise ending

    with pytest.raises(CopilotError, match="could not be created"):
        await asked(leave)


@in_one_test(
    ("wrong", "message"),
    [
        (7, "The instructions are a int."),
        (["Be brief."], "The instructions are a list."),
        (take_nothing, "'take_nothing' cannot make instructions: it does not take a run."),
        (take_two, "it does not take a run."),
    ],
)
def test_what_cannot_be_instructions_is_said_at_the_start(wrong: Any, message: str) -> None:
    with pytest.raises(ConfigurationFailed) as caught:
        DirectAgent(ScriptedAdapter(), instructions=wrong)
    assert message in caught.value.message
    assert caught.value.hint


@protocols
@in_one_test(
    "echo",
    [
        f"OpenAI API error: 400 Invalid content: {PROMPT}",
        'vLLM API error: 400 {"content": "You are the clerk\\n of a bookshop. The pas...',
        "OpenAI API error: 400 the  password is\nXYLOPHONE-42, is it?",
        f"Gateway API error: 502 {quote(PROMPT)}",
        "Gateway API error: 502 the&#32;password&#32;is&#32;xylophone-42",
    ],
)
async def test_a_provider_that_repeats_them_in_an_error_is_not_quoted(
    follow_up: Any, echo: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    adapter = ScriptedAdapter(NetworkError(echo, hint=echo))
    with pytest.raises(NetworkError) as caught:
        await events_of(DirectAgent(adapter, instructions=PROMPT), follow_up=follow_up)

    error = caught.value
    assert "API error" not in error.message
    assert error.message.endswith(
        "refused the request. Why is in the server's log, at level debug."
    )
    for text in (str(error), error.message, str(error.hint), error.report().message, caplog.text):
        assert "bookshop" not in text
        assert "xylophone" not in text.lower()


async def test_letters_that_json_escapes_are_recognized() -> None:
    prompt = "あなたは本屋の店員です。パスワードは木琴四十二番ですが、誰にも言わないでください。"
    echo = f"vLLM API error: 400 {json.dumps({'content': prompt})}"
    adapter = ScriptedAdapter(NetworkError(echo))
    with pytest.raises(NetworkError, match="vLLM refused the request"):
        await events_of(DirectAgent(adapter, instructions=prompt))


async def test_a_fallback_does_not_log_instructions_that_a_provider_repeats(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    failing = ScriptedAdapter(NetworkError(f"vLLM API error: 500 crashed at {PROMPT}"))
    fallback = FallbackAdapter(failing, ScriptedAdapter(say("Hello")))
    assert await events_of(DirectAgent(fallback, instructions=PROMPT)) == say("Hello")
    assert "asking the next: vLLM refused the request." in caplog.text
    assert "bookshop" not in caplog.text


@in_one_test("words", ["OpenAI API error: 400 no", f"OpenAI API error: 400 {PROMPT}"])
async def test_what_hooks_get_of_such_an_error_does_not_have_its_cause_either(words: str) -> None:
    error = NetworkError(words)
    error.__cause__ = ValueError(f"400 {{'input': {PROMPT!r}}}")
    with pytest.raises(NetworkError) as caught:
        await events_of(DirectAgent(ScriptedAdapter(error), instructions=PROMPT))
    assert "bookshop" not in "".join(format_exception(caught.value))


async def test_the_cause_of_a_cause_is_looked_at_as_well() -> None:
    error, cause = NetworkError("OpenAI API error: 400 no"), OSError("refused")
    error.__cause__ = cause
    cause.__cause__ = ExceptionGroup("of the client", [ValueError(PROMPT)])
    with pytest.raises(NetworkError) as caught:
        await events_of(DirectAgent(ScriptedAdapter(error), instructions=PROMPT))
    assert "bookshop" not in "".join(format_exception(caught.value))


async def test_a_cause_that_repeats_nothing_stays() -> None:
    error = NetworkError("OpenAI API error: connection lost")
    error.__cause__ = cause = OSError("reset")
    with pytest.raises(NetworkError) as caught:
        await events_of(DirectAgent(ScriptedAdapter(error), instructions=PROMPT))
    assert caught.value.__cause__ is cause


async def test_any_other_error_is_shown_as_it_is() -> None:
    message = "OpenAI API error: 400 This model's maximum context length is 10 tokens."
    adapter = ScriptedAdapter(Misuse(message, hint="Model: 'm'."))
    with pytest.raises(Misuse) as caught:
        await events_of(DirectAgent(adapter, instructions=PROMPT))
    assert (caught.value.message, caught.value.hint) == (message, "Model: 'm'.")


async def parameters(defaults: Any, wishes: Parameters | None = None) -> Parameters:
    adapter = ScriptedAdapter(say("Hello"))
    agent = DirectAgent(adapter, parameters=defaults)
    await events_of(agent, parameters=wishes or Parameters())
    return adapter.requests[0].parameters


async def test_parameters_hold_where_a_client_asks_for_no_others() -> None:
    defaults = {"temperature": 0.2, "max_tokens": 500, "stop": ["END"]}
    wishes = Parameters(temperature=0, seed=7)

    assert await parameters(defaults) == Parameters(temperature=0.2, max_tokens=500, stop=("END",))
    assert await parameters(defaults, wishes) == Parameters(
        temperature=0, max_tokens=500, stop=("END",), seed=7
    )
    assert await parameters(Parameters(top_p=0.5), wishes) == Parameters(
        temperature=0, seed=7, top_p=0.5
    )


async def test_every_parameter_there_is_can_be_given() -> None:
    every: Mapping[str, Any] = {
        "model": "m",
        "temperature": 1,
        "max_tokens": 9,
        "stop": ("END",),
        "tool_choice": "none",
        "parallel_tool_calls": False,
        "top_p": 0.5,
        "seed": 7,
        "frequency_penalty": 0.1,
        "presence_penalty": -0.1,
        "reasoning_effort": "low",
        "response_schema": {"type": "object"},
        "response_name": "book",
    }
    assert {*every, "tool_choice_name"} == set(Parameters.__dataclass_fields__)
    assert await parameters(every) == await parameters(Parameters(**every)) == Parameters(**every)


@in_one_test(
    ("wrong", "message"),
    [
        ({"temprature": 1}, "there is no setting 'temprature'. Did you mean 'temperature'?"),
        ({"maxTokens": 9}, "there is no setting 'maxTokens'. Did you mean 'max_tokens'?"),
        ({"temperature": "hot"}, "'temperature' is 'hot'; it should be a valid number."),
        ({"temperature": "0.5"}, "'temperature' is '0.5'; it should be a valid number."),
        ({"temperature": True}, "'temperature' is True; it is refused because it is a boolean"),
        ({"temperature": -1}, "'temperature' is -1; it should be greater than or equal to 0."),
        ({"temperature": float("nan")}, "'temperature' is nan; it should be"),
        ({"max_tokens": 0}, "'max_tokens' is 0; it should be greater than 0."),
        ({"max_tokens": 2.5}, "'max_tokens' is 2.5; it should be a valid integer."),
        ({"stop": 3}, "'stop' is 3; it should be a valid tuple."),
        ({"tool_choice": "required"}, "'tool_choice' is 'required'; it should be 'auto' or 'none'"),
        ({"tool_choice_name": "look_up"}, "there is no setting 'tool_choice_name'. Did you mean"),
        ({"response_schema": "no JSON"}, "'response_schema' is 'no JSON'; it is refused because"),
        (Parameters(seed="x"), "'seed' is 'x'; it should be a valid integer."),  # pyright: ignore[reportArgumentType]  # the mistake
        ([("temperature", 1)], "The parameters are a list, and not a mapping of names to values."),
        ("temperature", "The parameters are a str, and not a mapping of names to values."),
        ({1: 2}, "there is no setting '1'. Known: model, temperature"),
    ],
)
def test_wrong_parameters_are_said_at_the_start(wrong: Any, message: str) -> None:
    with pytest.raises(ConfigurationFailed) as caught:
        DirectAgent(ScriptedAdapter(), parameters=wrong)
    assert message in caught.value.message
    assert caught.value.hint
