"""Surfaces of A2A agents: the extension for A2UI, of 0.9 and of 0.8."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from a2a.server.agent_execution import RequestContext
from a2a.server.tasks import TaskUpdater
from a2a.types import Part
from google.protobuf.json_format import MessageToDict

from copilot_runtime import Settings
from copilot_runtime.api.events import Activity
from copilot_runtime.api.messages import ActionExecutionMessage, ResultMessage, TextMessage
from copilot_runtime.extensions.a2a.client import A2aAgent
from copilot_runtime.extensions.a2a.client.surfaces import (
    MAX_SURFACE_BYTES,
    LegacySurface,
    SurfaceBook,
)
from copilot_runtime.extensions.generative_ui.a2ui.operations import (
    BASIC_CATALOG,
    create_surface,
    update_components,
    update_data_model,
)
from tests.extensions.a2a.client.remote import Remote, Script, asked, data_part, hear, serve_remote
from tests.in_one_test import in_one_test
from tests.wire_agui.http import text_of, user
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

V09 = "https://a2ui.org/a2a-extension/a2ui/v0.9"
V08 = "https://a2ui.org/a2a-extension/a2ui/v0.8"
ROOT = {"id": "root", "component": "Text", "text": "Hello"}
CLICK = [
    TextMessage(id="1", role="user", content="Show me"),
    TextMessage(id="2", role="assistant", content=""),
    ActionExecutionMessage(
        id="3", name="log_a2ui_event", arguments='{"name": "buy", "surfaceId": "s"}', parent_id="2"
    ),
    ResultMessage(id="4", call_id="3", name="log_a2ui_event", result="User performed ..."),
]


def drawing(*values: Any, **types: str) -> Script:
    """Return a script that sends values as parts of one artifact."""

    async def script(remote: Remote, task: TaskUpdater, context: RequestContext) -> None:
        await task.add_artifact([data_part(value, **types) for value in values], "ui")
        await task.complete()

    return script


def drawn(events: list[Any]) -> list[Activity]:
    return [it for it in events if isinstance(it, Activity)]


@in_one_test(
    "types",
    [{"mime_type": "application/json+a2ui"}, {"media_type": "application/a2ui+json"}],
    ids=["metadata", "media type"],
)
async def test_messages_of_a2ui_are_a_surface_of_the_page(types: dict[str, str]) -> None:
    operations = [create_surface("s"), update_components("s", [ROOT])]
    async with serve_remote(drawing(*operations, **types), extensions=[V09]) as remote:
        found = drawn(await hear(A2aAgent(remote.url)))
    assert {it.activity_type for it in found} == {"a2ui-surface"}
    assert found[-1].content == {"a2ui_operations": operations}
    assert len({it.message_id for it in found}) == 1


async def test_a_change_in_a_later_run_is_drawn_where_the_surface_is() -> None:
    async def script(remote: Remote, task: TaskUpdater, context: RequestContext) -> None:
        first = [create_surface("s"), update_components("s", [ROOT])]
        is_first = len(remote.asked) == 1
        value = first if is_first else [update_data_model("s", {"n": 1})]
        await task.add_artifact([data_part(value, "application/a2ui+json")], "ui")
        await task.complete()

    async with serve_remote(script, extensions=[V09]) as remote:
        agent = A2aAgent(remote.url)
        [made] = drawn(await hear(agent))
        [changed] = drawn(await hear(agent))
    assert made.message_id == changed.message_id
    assert changed.content == {
        "a2ui_operations": [
            create_surface("s"),
            update_components("s", [ROOT]),
            update_data_model("s", {"n": 1}),
        ]
    }


def test_a_surface_that_changes_a_thousand_times_is_drawn_less_often() -> None:
    book = SurfaceBook()
    first = [create_surface("s"), update_components("s", [ROOT])]
    changes = [update_data_model("s", number) for number in range(900)]
    messages: list[Any] = [*first, *changes]
    drawings = [it for message in messages for it in book.feed(dict(message))]
    [last] = book.flush()

    assert len(drawings) < 200
    assert last.content == {"a2ui_operations": messages}
    assert [*book.flush()] == []


async def test_a_surface_of_0_8_becomes_one_of_0_9() -> None:
    components = [
        {"id": "col", "component": {"Column": {"children": {"explicitList": ["t", "b"]}}}},
        {
            "id": "t",
            "component": {"Text": {"text": {"path": "/title"}, "usageHint": "h2"}},
        },
        {
            "id": "b",
            "component": {
                "Button": {
                    "child": "t",
                    "primary": True,
                    "action": {
                        "name": "buy",
                        "context": [{"key": "sku", "value": {"literalString": "X1"}}],
                    },
                }
            },
        },
    ]
    messages = [
        {"surfaceUpdate": {"surfaceId": "s", "components": components}},
        {
            "dataModelUpdate": {
                "surfaceId": "s",
                "contents": [{"key": "title", "valueString": "Shop"}],
            }
        },
        {"beginRendering": {"surfaceId": "s", "root": "col"}},
    ]
    script = drawing(*messages, mime_type="application/json+a2ui")
    async with serve_remote(script, extensions=[V08], version="0.3") as remote:
        found = drawn(await hear(A2aAgent(remote.url)))
    event = {"name": "buy", "context": {"sku": "X1"}}
    assert [it.content for it in found] == [
        {
            "a2ui_operations": [
                create_surface("s"),
                update_components(
                    "s",
                    [
                        {"id": "col", "component": "Column", "children": ["t", "b"]},
                        {
                            "id": "t",
                            "component": "Text",
                            "text": {"path": "/title"},
                            "variant": "h2",
                        },
                        {
                            "id": "b",
                            "component": "Button",
                            "child": "t",
                            "action": {"event": event},
                            "variant": "primary",
                        },
                    ],
                ),
                update_data_model("s", {"title": "Shop"}),
                update_components(
                    "s", [{"id": "root", "component": "Column", "children": ["col"]}]
                ),
            ]
        }
    ]


def test_templates_choices_and_nested_values_of_0_8_are_upgraded() -> None:
    surface = LegacySurface()
    template = {"template": {"componentId": "row", "dataBinding": "/items"}}
    choice = {
        "selections": {"path": "/chosen"},
        "options": [{"label": {"literalString": "A"}, "value": "a"}],
        "maxAllowedSelections": 1,
    }
    surface.feed({"beginRendering": {"surfaceId": "s", "root": "root"}})
    [components] = surface.feed(
        {
            "surfaceUpdate": {
                "surfaceId": "s",
                "components": [
                    {"id": "root", "weight": 2, "component": {"List": {"children": template}}},
                    {"id": "c", "component": {"MultipleChoice": choice}},
                    {"id": "broken"},
                ],
            }
        }
    )
    [data] = surface.feed(
        {
            "dataModelUpdate": {
                "surfaceId": "s",
                "path": "user",
                "contents": [
                    {"key": "age", "valueNumber": 3},
                    {"key": "in", "valueMap": [{"key": "x", "valueBoolean": True}]},
                ],
            }
        }
    )
    assert components["updateComponents"]["components"] == [
        {
            "id": "root",
            "component": "List",
            "weight": 2,
            "children": {"componentId": "row", "path": "/items"},
        },
        {
            "id": "c",
            "component": "ChoicePicker",
            "value": {"path": "/chosen"},
            "options": [{"label": "A", "value": "a"}],
            "variant": "mutuallyExclusive",
        },
    ]
    assert data == update_data_model("s", {"age": 3, "in": {"x": True}}, "/user")


@in_one_test(
    ("uri", "event"),
    [
        (V09, {"version": "v0.9", "action": {"name": "buy", "surfaceId": "s"}}),
        (V08, {"userAction": {"name": "buy", "surfaceId": "s"}}),
    ],
)
async def test_a_click_reaches_the_agent_as_data(uri: str, event: dict[str, Any]) -> None:
    async with serve_remote(extensions=[uri]) as remote:
        await hear(A2aAgent(remote.url), asked(messages=CLICK))
    [part] = remote.asked[0].parts
    assert MessageToDict(part.data) == event
    assert part.metadata["mimeType"] == part.media_type


@in_one_test(
    ("uri", "capabilities"),
    [
        (V09, {"v0.9": {"supportedCatalogIds": [BASIC_CATALOG]}}),
        (V08, {"supportedCatalogIds": [BASIC_CATALOG]}),
    ],
)
async def test_an_agent_with_the_extension_learns_what_the_page_draws(
    uri: str, capabilities: dict[str, Any]
) -> None:
    async with serve_remote(extensions=[uri]) as remote:
        await hear(A2aAgent(remote.url))
    assert MessageToDict(remote.asked[0].metadata) == {"a2uiClientCapabilities": capabilities}
    assert (remote.headers[-1]["a2a-extensions"], remote.asked[0].extensions) == (uri, [uri])


async def test_an_agent_without_the_extension_gets_nothing_of_it() -> None:
    async with serve_remote(extensions=["https://example.com/other"]) as remote:
        await hear(A2aAgent(remote.url))
    assert not remote.asked[0].HasField("metadata")
    assert "a2a-extensions" not in remote.headers[-1]


@in_one_test(
    ("operation", "reason"),
    [
        ({"updateComponents": {"surfaceId": "s", "components": "x"}}, "updateComponents"),
        ({"updateDataModel": {"surfaceId": "s", "value": "x" * MAX_SURFACE_BYTES}}, "bytes"),
    ],
    ids=["shape", "size"],
)
def test_a_surface_that_cannot_be_drawn_says_so_and_is_forgotten(
    operation: dict[str, Any], reason: str
) -> None:
    book = SurfaceBook()
    [failed] = book.feed([create_surface("s"), operation])
    assert (failed.content["status"], reason in failed.content["error"]) == ("failed", True)
    assert book.size == 0


@in_one_test("value", [None, [], [1], {}, {"createSurface": 3}, {"other": {}}, "x"])
def test_what_is_no_message_of_a2ui_draws_nothing(value: Any) -> None:
    assert [*SurfaceBook().feed(value)] == []


def test_the_oldest_of_many_surfaces_are_forgotten() -> None:
    book = SurfaceBook()
    for number in range(100):
        _ = list(book.feed(create_surface(f"s{number}")))
    one = SurfaceBook()
    _ = list(one.feed(create_surface("s99")))
    assert book.size == 32 * one.size


OPERATIONS = [
    create_surface("s"),
    update_components("s", [{"id": "root", "component": "Text", "text": "Hi"}]),
]


async def draw(remote: Remote, task: TaskUpdater, context: RequestContext) -> None:
    parts = [data_part(it, "application/a2ui+json") for it in OPERATIONS]
    await task.add_artifact([*parts, Part(text="Look.")], "ui")
    await task.complete()


async def test_a_surface_reaches_the_page_and_a_click_the_agent_once() -> None:
    click = {"name": "buy", "surfaceId": "s", "sourceComponentId": "root", "context": {}}
    action = {"userAction": {**click, "timestamp": "2026-11-26T10:00:00Z"}}
    drawing: dict[str, Any] = {"a2uiCatalogAvailable": True}
    async with serve_remote(draw, extensions=[V09]) as remote:
        agents = {"shop": A2aAgent(remote.url)}
        async with browsing(agents=agents) as browser:
            ask: dict[str, Any] = {"agent": "shop", "messages": [user("Show me")]}
            shown = await browser.run(**ask, run="1", forwardedProps=drawing)
            await browser.run(**ask, run="2", forwardedProps={**drawing, "a2uiAction": action})
    surfaces = [it for it in shown.events() if it["type"] == "ACTIVITY_SNAPSHOT"]
    assert [it["content"] for it in surfaces] == [{"a2ui_operations": OPERATIONS}]
    assert text_of(shown.events()) == "Look."
    question, clicked = remote.asked
    assert question.parts[0].text == "Show me"
    assert [MessageToDict(it.data) for it in clicked.parts] == [
        {"version": "v0.9", "action": action["userAction"]}
    ]


async def test_a_stop_on_the_page_cancels_the_task() -> None:
    async def wait(remote: Remote, task: TaskUpdater, context: RequestContext) -> None:
        await task.start_work(task.new_agent_message([Part(text="Well")]))
        await remote.gate.wait()

    async with serve_remote(wait) as remote:
        agents = {"default": A2aAgent(remote.url)}
        async with browsing(agents=agents) as browser:
            async with browser.running(messages=[user("Hi")]) as running:
                await running.until("TEXT_MESSAGE_CONTENT")
                stopped = await browser.stop()
                await running.rest()
            await asyncio.wait_for(remote.was_canceled.wait(), 30)
    assert stopped["stopped"] is True


@in_one_test(
    "program",
    [
        "from copilot_runtime.extensions.a2a.client import A2aAgent",
        "from copilot_runtime import CopilotRuntime, Settings\n"
        "CopilotRuntime(settings=Settings(threads='memory', serve_a2a=True)).app()",
    ],
    ids=["agent", "server"],
)
async def test_without_the_package_an_error_names_the_extra(program: str) -> None:
    code = f"import sys; sys.modules['a2a'] = None\n{program}"
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert "pip install 'copilot-runtime[a2a]'" in done.stderr


async def ask_twice(remote: Remote, task: TaskUpdater, context: RequestContext) -> None:
    """Ask for a city, then for a day."""
    said = context.get_user_input()
    if said == "Monday":
        await task.complete(task.new_agent_message([Part(text="Sunny.")]))
    else:
        question = "Which city?" if said == "Weather?" else "Which day?"
        await task.requires_input(task.new_agent_message([Part(text=question)]))


async def test_a_task_goes_on_at_whatever_server_its_question_is_answered(tmp_path: Path) -> None:
    settings = Settings(threads=f"sqlite:{tmp_path / 'threads.db'}")
    async with (
        serve_remote(ask_twice) as remote,
        browsing(agents={"it": A2aAgent(remote.url)}, settings=settings) as first,
        browsing(agents={"it": A2aAgent(remote.url)}, settings=settings) as second,
    ):
        said = ["Weather?", "Bonn", "Monday", "Weather?"]
        answers = [
            await browser.run(agent="it", run=f"r{number}", messages=[user(text, f"u-{number}")])
            for number, (browser, text) in enumerate(zip([first, second] * 2, said, strict=True))
        ]

    assert [text_of(it.events()) for it in answers] == [
        "Which city?",
        "Which day?",
        "Sunny.",
        "Which city?",
    ]
    assert len({message.task_id for message in remote.asked[1:3]}) == 1
    assert remote.asked[3].task_id != remote.asked[2].task_id
