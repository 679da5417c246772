"""An extension of a program that makes mistakes harms no other part, and is named."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import say
from copilot_runtime.api.events import RunFailed, RunFinished, RunStarted
from copilot_runtime.app.extension import Contribution, Core, Extension
from copilot_runtime.base.errors import ConfigurationFailed, StoreFailed
from copilot_runtime.runtime.observer import RunObserver
from copilot_runtime.runtime.run import Run
from copilot_runtime.threads.store import ThreadKey
from tests.in_one_test import in_one_test
from tests.wire.client import Client, chat, merge

pytestmark = pytest.mark.anyio


class Broken(RunObserver):
    """Raises wherever it may not."""

    def on_start(self, run: Run, event: RunStarted) -> None:
        raise asyncio.CancelledError("at the start")

    def on_end(self, run: Run, event: RunFinished | RunFailed, *, is_lost: bool) -> None:
        raise ValueError("at the end")


class Refusing(RunObserver):
    async def admit(self, run: Run) -> None:
        raise ValueError("no reason that a client may read")


class Counting(RunObserver):
    """Counts the runs that it sees to their end."""

    runs = 0

    def on_end(self, run: Run, event: RunFinished | RunFailed, *, is_lost: bool) -> None:
        self.runs += 1


class Watching(Extension):
    """Contributes observers."""

    name = "watching"

    def __init__(self, *observers: Any) -> None:
        self._observers = observers

    def build(self, core: Core) -> Contribution:
        return Contribution(observers=self._observers)


def make_runtime(*extensions: Any) -> CopilotRuntime:
    settings = Settings(threads="memory")
    return CopilotRuntime(
        ScriptedAdapter(*[say("Hello")] * 2), settings=settings, extensions=extensions
    )


async def test_an_observer_that_raises_is_logged_and_harms_no_run_and_no_other_observer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counting = Counting()
    runtime = make_runtime(Watching(Broken(), counting))
    client = Client(runtime.app("/copilotkit"))
    answers = [await client.ask(chat()) for _ in range(2)]

    found = [merge(answer.payloads())["generateCopilotResponse"] for answer in answers]
    assert [one["messages"][0]["content"] for one in found] == [["Hello"]] * 2
    assert counting.runs == 2
    assert "The observer Broken failed; the run goes on" in caplog.text
    assert "at the start" in caplog.text
    assert "at the end" in caplog.text


async def test_an_observer_that_fails_at_the_admission_refuses_the_run_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await Client(make_runtime(Watching(Refusing())).app("/copilotkit")).ask(chat())

    assert "no reason that a client may read" in caplog.text


class Nameless(Extension):
    pass


class Texts(Extension):
    name = "mcp"  # takes the place of the built-in one
    requires = "knowledge"


class Empty(Extension):
    name = "empty"

    def build(self, core: Core) -> Any:
        pass


class Failing(Extension):
    name = "failing"

    def build(self, core: Core) -> Contribution:
        raise KeyError("city")


class Wrapping(Extension):
    name = "wrapping"

    def build(self, core: Core) -> Any:
        return Contribution(middleware=[make_runtime])  # type: ignore[list-item]


class Circular(Extension):
    name = "circular"
    requires = ("more",)


class More(Extension):
    name = "more"
    requires = ("circular",)


@in_one_test(
    ("extensions", "message"),
    [
        ([Nameless()], "Nameless has no name."),
        ([Texts()], "The extension 'mcp' has a text as requires."),
        ([Watching(), Watching()], "Two extensions of this program have the same name."),
        (
            [Empty()],
            "build() of the extension 'empty' returned a NoneType, and not a Contribution.",
        ),
        ([Circular(), More()], "Extensions require each other: circular, more, circular."),
        ([Failing()], "The extension 'failing' cannot be built: KeyError: 'city'"),
        (
            [Wrapping()],
            "The extension 'wrapping' contributes a function, and not a Middleware object.",
        ),
        (
            [Watching(Counting)],
            "The extension 'watching' contributes the class 'Counting', and not a RunObserver "
            "object.",
        ),
    ],
)
def test_a_mistake_in_an_extension_is_named_at_the_start(
    extensions: Sequence[Any], message: str
) -> None:
    with pytest.raises(ConfigurationFailed) as caught:
        make_runtime(*extensions)

    assert caught.value.message == message


class Early(Extension):
    """Uses a part of `Late`, which it requires."""

    name = "early"
    requires = ("late",)

    def build(self, core: Core) -> Contribution:
        core.parts.get(Counting)
        return Contribution()


class Late(Extension):
    name = "late"

    def build(self, core: Core) -> Contribution:
        return Contribution(parts={Counting: Counting()})


def test_an_extension_is_built_after_those_that_it_requires() -> None:
    assert make_runtime(Early(), Late()).find(Counting) is not None


class Forgetful(Extension):
    """Cannot delete its data."""

    name = "forgetful"

    async def forget_thread(self, thread: ThreadKey) -> None:
        raise KeyError("file")


async def test_a_thread_stays_if_an_extension_cannot_delete_its_data_and_the_error_names_it() -> (
    None
):
    runtime = make_runtime(Forgetful())
    with pytest.raises(StoreFailed, match="'forgetful' could not delete its data"):
        await runtime.conversations.delete(ThreadKey("", "t"))


class Doors(Extension):
    """Has checks that cannot be asked."""

    name = "doors"

    def __init__(self, found: Any) -> None:
        self._found = found

    def find_failing_checks(self) -> Any:
        return self._found

    def describe_health(self) -> Any:
        return self._found


@in_one_test(("found", "failing"), [("door", ["door"]), (None, ["doors"])])
def test_checks_of_an_extension_do_not_take_the_server_out_of_service(
    found: Any, failing: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    with TestClient(make_runtime(Doors(found)).app()) as client:
        ready = client.get("/health/ready")

    assert (ready.status_code, ready.json()["failing"]) == (200, failing)
