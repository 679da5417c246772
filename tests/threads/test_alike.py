"""A store in a file and one in memory never differ, whatever is done to them."""

import asyncio
import tempfile
from contextlib import aclosing as closing
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from copilot_runtime.api.events import TextMessageStart
from copilot_runtime.base.errors import Misuse, ThreadBusy
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.sqlite import SqliteThreads
from copilot_runtime.threads.store import Segment, ThreadKey, ThreadQuery, ThreadStore
from tests.threads.logs import log_of, run_of, user

_ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "piece", "end", "rename", "archive", "delete", "list"]),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["", "x"]),
        st.integers(0, 3),
    ),
    max_size=40,
)


@given(_ACTIONS)
def test_a_file_and_a_memory_never_differ(actions: list[tuple[str, str, str, int]]) -> None:
    async def both() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with (
                closing(SqliteThreads(Path(folder) / "threads.db")) as file,
                closing(MemoryThreads()) as memory,
            ):
                seen = [await played(store, actions) for store in (file, memory)]
        assert seen[0] == seen[1]

    asyncio.run(both())


async def played(store: ThreadStore, actions: list[tuple[str, str, str, int]]) -> list[object]:
    """Do all this, and return what was seen: all but the times."""
    seen: list[object] = []
    for step, (action, id, owner, number) in enumerate(actions):
        key = ThreadKey(owner, id)
        name = f"{owner}-{id}"
        try:
            seen.append(await _one(store, action, key, name, number, step))
        except (ThreadBusy, Misuse) as error:
            seen.append(type(error))
        seen.append(
            [(run.log_id, run.run_id, run.ended, run.events) for run in await store.runs(key)]
        )
    return seen


async def _one(
    store: ThreadStore, action: str, key: ThreadKey, name: str, number: int, step: int
) -> object:
    match action:
        case "begin":
            messages = [user(f"u{place}") for place in range(number + 1)]
            return await store.begin(run_of(key, run_id=f"{step}", log_id=name, messages=messages))
        case "piece":
            return await store.write(
                [Segment(log_id=name, events=[TextMessageStart(message_id="m")])]
            )
        case "end":
            whole = log_of(run_of(key, run_id=f"u{number}"))
            return await store.write([Segment(log_id=name, events=whole[-1:], whole=whole)])
        case "rename":
            thread = await store.update(key, name=str(number or ""))
            return thread and (thread.name, thread.archived, thread.agent)
        case "archive":
            thread = await store.update(key, archived=number > 1)
            return thread and (thread.name, thread.archived, thread.agent)
        case "delete":
            return await store.delete(key)
        case _:
            query = ThreadQuery(owner=key.owner, archived=number > 1, limit=1)
            return [thread.key for thread in (await store.list(query)).threads]
