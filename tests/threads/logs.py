"""Runs of threads as the tests of the stores make and read them."""

from collections.abc import Sequence
from typing import Any

from copilot_runtime.adapters.scripted import say
from copilot_runtime.api import RunInput
from copilot_runtime.api.events import Event, RunFinished, RunStarted
from copilot_runtime.api.messages import Message, TextMessage
from copilot_runtime.threads.store import Segment, ThreadKey, ThreadQuery, ThreadStore

KEY = ThreadKey("ann", "t")


def user(id: str = "u", text: str = "Hi") -> TextMessage:
    return TextMessage(id=id, role="user", content=text)


def run_of(
    key: ThreadKey = KEY, run_id: str = "r", messages: Sequence[Message] = (), **more: Any
) -> RunInput:
    return RunInput(
        thread_id=key.id,
        user=key.owner,
        run_id=run_id,
        messages=messages or [user()],
        persist=True,
        **more,
    )


def log_of(run: RunInput, *events: Event, new: Sequence[Message] = ()) -> list[Event]:
    """Return a whole log of a run; without events it says hello."""
    head = RunStarted(run_id=run.run_id, thread_id=run.thread_id, messages=new)
    return [head, *(events or say(["Hel", "lo"], id=f"m-{run.run_id}")), RunFinished()]


async def told(store: ThreadStore, run: RunInput, *events: Event) -> Sequence[Message]:
    """Begin a run, write it, end it. Return what was new in the request."""
    new = await store.begin(run)
    log = log_of(run, *events, new=new)
    await store.write([Segment(log_id=run.log_id, events=log[:-1])])
    await store.write([Segment(log_id=run.log_id, events=log[-1:], whole=log)])
    return new


ANNS = ThreadQuery(owner="ann")


async def listed(store: ThreadStore, query: ThreadQuery = ANNS) -> list[str]:
    return [thread.key.id for thread in (await store.list(query)).threads]


def threads(*ids: str, owner: str = "ann") -> Sequence[ThreadKey]:
    return [ThreadKey(owner, id) for id in ids]
