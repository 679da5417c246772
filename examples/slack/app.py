"""A bot in Slack: who mentions it, or writes to it, gets the answer in the thread of the message.

A thread in Slack is a thread here, for each person who asks in it; the person in Slack is the
caller, and the workspace is the tenant. The README has the steps in Slack.
"""

import asyncio
import hmac
import os
import re
import time
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

from copilot_runtime import CopilotRuntime, DemoAdapter, OpenAIAdapter, RunInput
from copilot_runtime.api.events import Interrupt, RunFailed, TextMessageContent, TextMessageEnd
from copilot_runtime.api.identity import Identity
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.config.loader import load_settings
from copilot_runtime.http.client import Upstream
from copilot_runtime.threads.log_ids import build_log_id
from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import Services, Transport

SECRET = os.environ["SLACK_SIGNING_SECRET"].encode()
TOKEN = os.environ["SLACK_BOT_TOKEN"]
API = os.environ.get("SLACK_API", "https://slack.com/api")
LIMIT = 12_000
"""Characters of one message: https://docs.slack.dev/reference/methods/chat.postMessage"""


class SlackTransport(Transport):
    """`POST /graphql/slack`: the Request URL of the Events API."""

    paths = ("slack",)
    has_own_auth = True

    def __init__(self, services: Services) -> None:
        self._runs = services.runs
        self._slack = Upstream("Slack")
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, request: Request) -> None:
        if not is_signed(request.headers, await request.body()):
            raise BadRequest("This is not signed by Slack.", 401)
        message = await request.json_object()
        event: dict[str, Any] = message.get("event") or {}
        if message.get("type") == "url_verification":
            await request.respond_json(200, {"challenge": message.get("challenge")})
            return
        if is_question(event):  # answered later: Slack waits for three seconds
            task = asyncio.create_task(self._answer(message, event))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await request.respond_json(200, {})

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._slack.aclose()

    async def _answer(self, message: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        """Answer a question, once: Slack repeats an event that it takes for lost."""
        person = Identity(user=event["user"], tenant=message["team_id"])
        text = re.sub(r"^\s*<@\w+>\s*", "", event["text"])
        begin = event.get("thread_ts") or event["ts"]
        run = RunInput(
            thread_id=f"{event['channel']}-{begin}",
            run_id=message["event_id"],
            log_id=build_log_id(text),
            messages=[TextMessage(id=message["event_id"], role="user", content=text)],
            user=person.owner,
            identity=person,
            persist=True,
            detached=True,
        )
        pieces: list[str] = []
        try:
            started, log = await self._runs.start_once(run)
            async with aclosing(log):
                if started is None:
                    return
                async for _, events in log:
                    pieces += map(to_text, events)
        except CopilotError as error:
            pieces = [error.public]
        answer = "".join(pieces).strip()
        for start in range(0, len(answer), LIMIT):
            body = {"channel": event["channel"], "thread_ts": begin}
            await self._post({**body, "markdown_text": answer[start : start + LIMIT]})

    async def _post(self, body: Mapping[str, str]) -> None:
        headers = {"authorization": f"Bearer {TOKEN}"}
        answer = await self._slack.request_json("POST", f"{API}/chat.postMessage", body, headers)
        if not (answer.body or {}).get("ok"):
            raise RuntimeError(f"Slack refused the answer ({answer.status}): {answer.body}")


def is_signed(headers: Mapping[str, str], body: bytes) -> bool:
    """https://docs.slack.dev/authentication/verifying-requests-from-slack"""
    sent = headers.get("x-slack-request-timestamp", "")
    digest = hmac.new(SECRET, b"v0:%b:%b" % (sent.encode(), body), "sha256").hexdigest()
    is_new = sent.isdecimal() and abs(time.time() - int(sent)) < 300
    given = headers.get("x-slack-signature", "").encode()
    return is_new and hmac.compare_digest(given, f"v0={digest}".encode())


def is_question(event: Mapping[str, Any]) -> bool:
    """Return whether a person wrote to the bot; its own messages come as events, too."""
    is_direct = event.get("type") == "message" and event.get("channel_type") == "im"
    is_ours = "bot_id" in event or "subtype" in event or not event.get("user")
    return (is_direct or event.get("type") == "app_mention") and not is_ours


def to_text(event: object) -> str:
    """Return the Markdown of an event."""
    match event:
        case TextMessageContent(content=piece):
            return piece
        case TextMessageEnd():
            return "\n\n"
        case Interrupt(message=question):
            return f"{question or 'A person has to answer.'}\n\n"
        case RunFailed(error=error):
            return error.message
        case _:
            return ""


app = CopilotRuntime(
    adapter=OpenAIAdapter(model="gpt-4o") if os.environ.get("OPENAI_API_KEY") else DemoAdapter(),
    transports=["agui", "graphql", SlackTransport],
    settings=load_settings(Path(__file__).with_name("copilot.yml")),
).app()
