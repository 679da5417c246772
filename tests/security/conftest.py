"""A run with guardrails, from the request to its log."""

from collections.abc import Sequence

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.api import RunInput
from copilot_runtime.api.agent import StageFunction
from copilot_runtime.api.events import Event, RunFailed, TextMessageContent
from copilot_runtime.api.messages import Message, TextMessage
from copilot_runtime.api.run_input import GuardrailRules
from copilot_runtime.base.errors import ErrorReport

RULES = GuardrailRules(allow=["fine"], deny=["forbidden"])
KEY = {"x-copilotcloud-public-api-key": "ck_pub_1"}


def asking(
    *texts: str | Message,
    rules: GuardrailRules | None = None,
    headers: dict[str, str] | None = None,
) -> RunInput:
    """Return a request whose messages are the given ones, texts being the user's."""
    messages: list[Message] = [
        TextMessage(id=f"m{number}", role="user", content=text) if isinstance(text, str) else text
        for number, text in enumerate(texts)
    ]
    return RunInput(
        thread_id="t", run_id="r", messages=messages, rules=rules, headers=headers or {}
    )


async def log_of(
    adapter: ScriptedAdapter,
    guardrails: Sequence[StageFunction],
    run: RunInput,
    *,
    settings: Settings | None = None,
) -> list[Event]:
    """Return everything a client could read of the run."""
    runtime = CopilotRuntime(
        adapter=adapter, guardrails=guardrails, settings=settings or Settings(threads="memory")
    )
    try:
        await runtime.runtime.start(run)
        return [event async for batch in runtime.runtime.follow("r") for event in batch.events]
    finally:
        await runtime.aclose()


def text_of(events: Sequence[Event]) -> str:
    return "".join(event.content for event in events if isinstance(event, TextMessageContent))


def refusal(events: Sequence[Event]) -> ErrorReport | None:
    last = events[-1]
    return last.error if isinstance(last, RunFailed) else None
