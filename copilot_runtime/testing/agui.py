"""The client side of AG-UI, which CopilotKit speaks from 1.50 on."""

from urllib.parse import quote

from copilot_runtime.agents.agui import run_agent_input
from copilot_runtime.agui.event_decoder import EventDecoder
from copilot_runtime.api.events import (
    AgentState,
    Custom,
    Event,
    Interrupt,
    MessagesSnapshot,
    RunStarted,
)
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.api.transcript import fold_conversation, fold_messages
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import to_text
from copilot_runtime.http.sse import SSEDecoder
from copilot_runtime.testing.answer import Answer, ReplyFailed, read_refusal
from copilot_runtime.testing.connection import Connection

_LEGACY_INTERRUPT = "on_interrupt"


async def send_agui(
    connection: Connection, path: str, run: RunInput, headers: dict[str, str]
) -> Answer:
    """Send a run to the agent's URL below `path` and return its answer."""
    state = run.agent_input.state
    url = f"{path.rstrip('/')}/agent/{quote(run.agent_name, safe='')}/run"
    body = dumps(run_agent_input(run, state))
    response = await connection.request(
        "POST",
        url,
        body,
        {"content-type": "application/json", "accept": "text/event-stream", **headers},
    )
    if "text/event-stream" not in response.headers.get("content-type", ""):
        raise read_refusal(response, url)
    frames, decoder = SSEDecoder(), EventDecoder(run.agent_name, state, run)
    events = decoder.read([*frames.feed(response.body), *frames.finish()])
    return _build_answer(run, events, decoder)


def _build_answer(run: RunInput, events: list[Event], decoder: EventDecoder) -> Answer:
    states = [event.state for event in events if isinstance(event, AgentState)]
    replaced = any(isinstance(event, MessagesSnapshot) for event in events)
    start = RunStarted(run_id=run.run_id, thread_id=run.thread_id, messages=run.messages)
    messages = fold_messages(events)
    conversation = None
    if replaced:
        before = {message.id for message in run.messages}
        conversation = fold_conversation([start, *events])
        messages = [message for message in conversation if message.id not in before]
    return Answer(
        messages=messages,
        conversation=conversation,
        state=states[-1] if states else None,
        interrupts=[*_read_interrupts(events)],
        failure=_read_failure(decoder),
        events=events,
    )


def _read_interrupts(events: list[Event]) -> list[Interrupt]:
    """Return the questions, in the current format or else in that of older clients."""
    return [event for event in events if isinstance(event, Interrupt)] or [
        Interrupt(interrupt_id="", value=event.value, message=to_text(event.value))
        for event in events
        if isinstance(event, Custom) and event.name == _LEGACY_INTERRUPT
    ]


def _read_failure(decoder: EventDecoder) -> ReplyFailed | None:
    failure: CopilotError | None = decoder.failure
    if failure is not None:
        return ReplyFailed(failure.message, code=failure.code)
    if not decoder.ended:
        return ReplyFailed("The answer broke off before its end.", code="INCOMPLETE_STREAM")
    return None
