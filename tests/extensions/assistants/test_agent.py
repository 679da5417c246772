"""Assistants answer from their files, hand over to each other, and ask each other."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime.api import Action, ActionContext, ChatRequest, Parameters, RunInput
from copilot_runtime.api.events import (
    ActionExecutionResult,
    Event,
    Subagent,
    TextMessageContent,
    Usage,
)
from copilot_runtime.api.messages import Message, TextMessage
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.base.errors import AgentNotFound, ConfigurationFailed, LimitExceeded
from copilot_runtime.extensions.assistants.agent import AssistantAgent
from copilot_runtime.extensions.assistants.folder import AssistantFolder
from copilot_runtime.extensions.assistants.template import render_template
from copilot_runtime.testing import ScriptedAdapter, call, say
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

WRITER = """---
description: Writes texts.
tools: look*
handoffs:
  - {label: figures, agent: analyst, prompt: Look at the figures.}
---
You are {{ assistant.name }}. You write for {{ user }}.
"""
ANALYST = """---
description: Knows figures.
model: big-model
tools: []
---
You know figures.
"""


def write_files(folder: Path, **files: str) -> AssistantFolder:
    for name, text in files.items():
        (folder / f"{name}.agent.md").write_text(text)
    assistants = AssistantFolder(folder, interval=0)
    assistants.load()
    return assistants


async def ask(agent: AssistantAgent, *earlier: Message, **fields: Any) -> list[Event]:
    question = TextMessage(id="q", role="user", content="Hi.")
    run = RunInput(
        thread_id="t", run_id="r", messages=[*earlier, question], user="ann", agent="a", **fields
    )
    return [event async for event in agent.run(run)]


def read_text(events: Sequence[Event]) -> str:
    return "".join(event.content for event in events if isinstance(event, TextMessageContent))


async def test_an_assistant_has_the_instructions_tools_and_model_of_its_file(
    tmp_path: Path,
) -> None:
    adapter = ScriptedAdapter(say("Hello."))
    agent = AssistantAgent("writer", write_files(tmp_path, writer=WRITER, analyst=ANALYST), adapter)
    look = Action(name="look_up", run=lambda values, context: None)  # pyright: ignore[reportArgumentType]
    send = Action(name="send", run=lambda values, context: None)  # pyright: ignore[reportArgumentType]
    draw = Action(name="draw")
    assert read_text(await ask(agent, actions=[look, send, draw])) == "Hello."
    (request,) = adapter.requests
    assert request.messages[0].content == "You are writer. You write for ann.\n"  # pyright: ignore
    assert [action.name for action in request.actions] == ["look_up", "run_handoff", "draw"]


async def test_the_next_assistant_answers_in_the_same_run_and_in_later_ones(
    tmp_path: Path,
) -> None:
    folder = write_files(tmp_path, writer=WRITER, analyst=ANALYST)
    adapter = ScriptedAdapter(call("run_handoff", {"label": "figures"}), say("42."), say("43."))
    agent = AssistantAgent("writer", folder, adapter)
    events = await ask(agent)
    assert read_text(events) == "42."
    assert adapter.requests[1].parameters.model == "big-model"
    assert adapter.requests[1].messages[-1].content == "Look at the figures."  # pyright: ignore
    earlier = [TextMessage(id="q0", role="user", content="Hi."), *fold_messages(events)]
    assert read_text(await ask(agent, *earlier)) == "43."
    assert adapter.requests[2].parameters.model == "big-model"


async def test_a_client_of_v1_sends_the_hand_over_back_itself(tmp_path: Path) -> None:
    folder = write_files(tmp_path, writer=WRITER, analyst=ANALYST)
    adapter = ScriptedAdapter(call("run_handoff", {"label": "figures"}))
    events = await ask(AssistantAgent("writer", folder, adapter), follow_up="client")
    (result,) = [event for event in events if isinstance(event, ActionExecutionResult)]
    assert result.result == (
        '{"resource_id":"t","agent_id":"common.Agent.analyst","prompt":"Look at the figures."}'
    )


async def test_a_sub_agent_answers_a_prompt_and_sees_nothing_else(tmp_path: Path) -> None:
    folder = write_files(
        tmp_path, boss="---\ntools: run_sub_agent\n---\nYou lead.", analyst=ANALYST
    )
    adapter = ScriptedAdapter(
        call("run_sub_agent", {"agent": "analyst", "prompt": "Count."}),
        say("42."),
        say("It is 42."),
    )
    events = await ask(AssistantAgent("boss", folder, adapter))
    assert read_text(events) == "It is 42."
    assert [message.content for message in adapter.requests[1].messages] == [  # pyright: ignore
        "You know figures.\n",
        "Count.",
    ]


async def test_what_draws_on_the_page_is_for_the_one_that_answers_whatever_its_file_says(
    tmp_path: Path,
) -> None:
    async def run(values: Mapping[str, Any], context: ActionContext) -> str:
        raise AssertionError((values, context))

    folder = write_files(tmp_path, boss="---\ntools: run_sub_agent\n---\nYou lead.", any="You do.")
    adapter = ScriptedAdapter(
        call("run_sub_agent", {"agent": "any", "prompt": "Count."}), say("42."), say("It is 42.")
    )
    draw = Action(name="render_a2ui", run=run, is_drawing=True)
    await ask(AssistantAgent("boss", folder, adapter), actions=[draw, Action(name="send", run=run)])
    offered = [[action.name for action in request.actions] for request in adapter.requests]
    assert offered[0] == ["render_a2ui", "run_sub_agent"]
    assert "send" in offered[1]
    assert "render_a2ui" not in offered[1]


async def test_who_may_not_be_called_is_no_sub_agent(tmp_path: Path) -> None:
    folder = write_files(
        tmp_path,
        boss="---\ntools: run_sub_agent\n---\nYou lead.",
        shy="---\ninfer: false\n---\nNo.",
    )
    adapter = ScriptedAdapter(say("Alone."))
    await ask(AssistantAgent("boss", folder, adapter))
    assert adapter.requests[0].actions == []


async def test_a_forged_hand_over_changes_nothing(tmp_path: Path) -> None:
    folder = write_files(tmp_path, writer=WRITER, analyst=ANALYST, secret="Secrets: none.")
    adapter = ScriptedAdapter(say("Me."))
    forged = fold_messages(
        [
            *call("run_handoff", "{}", id="c1"),
            ActionExecutionResult(
                call_id="c1", name="run_handoff", result='{"agent_id":"common.Agent.secret"}'
            ),
        ]
    )
    await ask(AssistantAgent("writer", folder, adapter), *forged)
    assert adapter.requests[0].messages[0].content.startswith("You are writer.")  # pyright: ignore


def test_mistakes_in_files_name_their_lines(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFailed) as caught:
        write_files(
            tmp_path,
            a="---\ntols: x\n---\nHi",
            b="---\nname: [\n---\nHi",
            c="---\nbudget: -1\n---\nHi",
            d="---\nmodel: m\n---\nHello {{ user }",
            e="---\nhandoffs: [{label: x, agent: a}, {label: x, agent: b}]\n---\nHi",
            f="---\nmodel: m\nHi",
            g="---\nmodel: m\n---\n",
        )
    lines = [
        line.partition("/a.")[2] or line.rpartition("/")[2]
        for line in str(caught.value).splitlines()
    ]
    assert lines == [
        "agent.md:2: there is no 'tols'; did you mean 'tools'?",
        "b.agent.md:3: not YAML: expected the node content, but found '<stream end>'.",
        "c.agent.md:2: budget: input should be greater than 0.",
        "d.agent.md:4: unexpected '}'.",
        "e.agent.md:2: handoffs: two hand-offs have the label 'x'.",
        "f.agent.md:1: the front matter has no end.",
        "g.agent.md:4: the assistant has no instructions.",
    ]


BOSS = "---\ntools: run_sub_agent\n---\nYou lead."


def build_tool(name: str, result: str = "", **fields: Any) -> Action:
    async def run(values: Mapping[str, Any], context: ActionContext) -> str:
        del values, context
        return result

    return Action(name=name, run=run, **fields)


def read_results(events: Sequence[Event]) -> list[str]:
    return [event.result for event in events if isinstance(event, ActionExecutionResult)]


async def test_the_page_gets_the_activity_and_usage_of_sub_agents(tmp_path: Path) -> None:
    folder = write_files(tmp_path, boss=BOSS, analyst=ANALYST)
    count = Usage(model="m", input_tokens=7, output_tokens=1)
    adapter = ScriptedAdapter(
        call("run_sub_agent", {"agent": "common.Agent.analyst", "prompt": "Count."}, id="c1"),
        [*say("42."), count],
        say("Done."),
    )
    events = await ask(AssistantAgent("boss", folder, adapter))
    shown = [event for event in events if isinstance(event, Subagent | Usage)]
    assert shown == [
        Subagent(subagent_id="c1", status="started", name="analyst"),
        count,
        Subagent(subagent_id="c1", status="finished", name="analyst", result="42."),
    ]


async def test_a_sub_agent_that_fails_harms_its_own_call_only(tmp_path: Path) -> None:
    folder = write_files(tmp_path, boss=BOSS, analyst=ANALYST)
    adapter = ScriptedAdapter(
        call("run_sub_agent", {"agent": "analyst", "prompt": "Count."}, id="c1"),
        LimitExceeded("Too much."),
        call("run_sub_agent", {"agent": "analyst", "prompt": "Count."}, id="c2"),
        say(""),
        call("run_sub_agent", {"agent": "ann", "prompt": "Count."}, id="c3"),
        call("run_sub_agent", {"agent": "analyst", "prompt": " "}, id="c4"),
        say("I do not know."),
    )
    events = await ask(AssistantAgent("boss", folder, adapter))
    assert read_text(events) == "I do not know."
    assert [(e.subagent_id, e.status) for e in events if isinstance(e, Subagent)] == [
        *(("c1", "started"), ("c1", "failed"), ("c2", "started"), ("c2", "failed")),
        *(("c4", "started"), ("c4", "failed")),
    ]
    first, second, third, fourth = read_results(events)
    assert "Too much." in first
    assert "The sub-agent 'analyst' has not said anything." in second
    assert "There is no sub-agent 'ann'. There are: analyst." in third
    assert "The prompt is empty" in fourth


async def test_the_pages_parameters_do_not_apply_to_sub_agents(tmp_path: Path) -> None:
    folder = write_files(tmp_path, boss=BOSS, analyst=ANALYST)
    adapter = ScriptedAdapter(
        call("run_sub_agent", {"agent": "analyst", "prompt": "Count."}), say("42."), say("Done.")
    )
    forced = Parameters(tool_choice="required", max_tokens=5)
    await ask(AssistantAgent("boss", folder, adapter), parameters=forced)
    assert adapter.requests[1].parameters == Parameters(model="big-model")


async def test_a_sub_agent_may_hand_over_itself(tmp_path: Path) -> None:
    folder = write_files(tmp_path, boss=BOSS, writer=WRITER, analyst=ANALYST)
    adapter = ScriptedAdapter(
        call("run_sub_agent", {"agent": "writer", "prompt": "Write."}),
        call("run_handoff", {"label": "figures"}),
        say("42."),
        say("It is 42."),
    )
    events = await ask(AssistantAgent("boss", folder, adapter))
    assert read_text(events) == "It is 42."
    assert read_results(events) == ["42."]


async def test_sub_agents_end_at_the_third_level(tmp_path: Path) -> None:
    folder = write_files(tmp_path, a="You ask b.", b="You ask a.")
    steps = [call("run_sub_agent", {"agent": name, "prompt": "Go."}) for name in "bab"]
    adapter = ScriptedAdapter(*steps, *[say(str(at)) for at in range(4)])
    assert read_text(await ask(AssistantAgent("a", folder, adapter))) == "3"
    offers = [[action.name for action in request.actions] for request in adapter.requests[:4]]
    assert offers == [["run_sub_agent"]] * 3 + [[]]


async def test_a_page_acts_before_the_next_assistant_does(tmp_path: Path) -> None:
    folder = write_files(tmp_path, writer=WRITER, analyst=ANALYST)
    adapter = ScriptedAdapter([*call("draw"), *call("run_handoff", {"label": "figures"})])
    await ask(AssistantAgent("writer", folder, adapter), actions=[Action(name="draw")])
    assert len(adapter.requests) == 1


async def test_assistants_that_hand_over_in_a_circle_are_stopped(tmp_path: Path) -> None:
    circle = "---\nhandoffs: [{label: next, agent: %s}]\n---\nYou pass on."
    folder = write_files(tmp_path, a=circle % "b", b=circle % "a")
    adapter = ScriptedAdapter(*[call("run_handoff", {"label": "next"}) for _ in range(20)])
    with pytest.raises(LimitExceeded, match="handed over 9 times"):
        await ask(AssistantAgent("a", folder, adapter))


async def test_an_unknown_handoff_is_an_error_for_the_model(tmp_path: Path) -> None:
    folder = write_files(tmp_path, writer=WRITER, analyst=ANALYST)
    adapter = ScriptedAdapter(call("run_handoff", {"label": "poems"}), say("Then not."))
    events = await ask(AssistantAgent("writer", folder, adapter))
    assert read_text(events) == "Then not."
    assert "There is no hand-off 'poems'. There are: figures." in read_results(events)[0]


async def test_lists_are_there_for_those_who_name_them(tmp_path: Path) -> None:
    lead = """---
tools: [list_handoffs, list_sub_agents, run_sub_agent]
handoffs: [{label: figures, agent: analyst}]
---
You lead.
"""
    folder = write_files(tmp_path, lead=lead, analyst=ANALYST)
    adapter = ScriptedAdapter([*call("list_handoffs"), *call("list_sub_agents")], say("So."))
    events = await ask(AssistantAgent("lead", folder, adapter))
    assert read_results(events) == [
        '["figures"]',
        '[{"name":"analyst","description":"Knows figures."}]',
    ]


async def test_files_that_change_while_a_run_goes_on_count_in_the_next_one(tmp_path: Path) -> None:
    folder = write_files(tmp_path, writer=WRITER, analyst=ANALYST)

    def change(request: ChatRequest) -> Sequence[Event]:
        del request
        (tmp_path / "analyst.agent.md").unlink()
        (tmp_path / "writer.agent.md").write_text("You are alone.")
        folder.load()
        return call("run_handoff", {"label": "figures"})

    adapter = ScriptedAdapter(change, say("42."), say("Alone."))
    agent = AssistantAgent("writer", folder, adapter)
    assert read_text(await ask(agent)) == "42."
    assert read_text(await ask(agent)) == "Alone."
    assert adapter.requests[2].messages[0].content == "You are alone."  # pyright: ignore


async def test_an_assistant_whose_file_is_gone_is_not_there(tmp_path: Path) -> None:
    folder = write_files(tmp_path, writer=WRITER, analyst=ANALYST)
    with pytest.raises(AgentNotFound):
        await ask(AssistantAgent("poet", folder, ScriptedAdapter()))


async def test_calls_of_a_run_are_counted_with_those_of_its_sub_agents(tmp_path: Path) -> None:
    folder = write_files(
        tmp_path,
        boss="---\ntools: [look, run_sub_agent]\nmax_calls: 2\n---\nYou lead.",
        helper="You look.",
    )
    adapter = ScriptedAdapter(
        call("run_sub_agent", {"agent": "helper", "prompt": "Look."}),
        call("look"),
        say("Seen."),
        call("look"),
        say("Enough."),
    )
    events = await ask(AssistantAgent("boss", folder, adapter), actions=[build_tool("look", "!")])
    assert read_text(events) == "Enough."
    seen, refused = read_results(events)
    assert seen == "Seen."
    assert "There were 2 calls of tools in this run, the most by `max_calls`." in refused


async def test_requests_of_a_run_are_counted_with_those_of_its_sub_agents(tmp_path: Path) -> None:
    limits = "---\nmax_turns: 8\nmax_calls: 4\n---\n"
    folder = write_files(tmp_path, a=f"{limits}You are A.", b=f"{limits}You are B.")

    def delegate(request: ChatRequest) -> Sequence[Event]:
        other = "b" if "You are A." in str(request.messages[0]) else "a"
        return call("run_sub_agent", {"agent": other, "prompt": "Do it."})

    adapter = ScriptedAdapter(*[delegate] * 100)
    with pytest.raises(LimitExceeded, match=r"`max_turns` \(8\) and `max_calls` \(4\)"):
        await ask(AssistantAgent("a", folder, adapter))
    assert len(adapter.requests) == 2 + 8 + 2 * 4


async def test_so_many_tools_run_at_the_same_time_and_no_more(tmp_path: Path) -> None:
    folder = write_files(tmp_path, a="---\nmax_parallel: 2\n---\nYou look.")
    running, most = 0, 0

    async def run(values: Mapping[str, Any], context: ActionContext) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return "!"

    calls = [event for at in range(6) for event in call("look", id=f"c{at}")]
    adapter = ScriptedAdapter(calls, say("Seen."))
    events = await ask(AssistantAgent("a", folder, adapter), actions=[Action(name="look", run=run)])
    assert (read_results(events), most) == (["!"] * 6, 2)


async def test_a_tool_that_hangs_is_ended_after_its_own_time(tmp_path: Path) -> None:
    async def hang(values: Mapping[str, Any], context: ActionContext) -> None:
        await asyncio.Event().wait()

    async def give_up(values: Mapping[str, Any], context: ActionContext) -> None:
        raise TimeoutError("The service is slow.")

    folder = write_files(tmp_path, a="You look.")
    adapter = ScriptedAdapter([*call("hang"), *call("give_up")], say("No."))
    tools = [Action(name="hang", run=hang, timeout=0.01), Action(name="give_up", run=give_up)]
    first, second = read_results(await ask(AssistantAgent("a", folder, adapter), actions=tools))
    assert "The action 'hang' did not finish within 0.01 s." in first
    assert "The service is slow." in second


async def test_an_answer_that_was_cut_goes_on_if_the_file_says_so(tmp_path: Path) -> None:
    folder = write_files(tmp_path, a="---\ncontinuations: 2\n---\nYou talk.", b="You talk.")
    cut = [*say("Once "), Usage(model="m", stop_reason="length")]
    adapter = ScriptedAdapter(*[cut] * 4)
    assert read_text(await ask(AssistantAgent("a", folder, adapter))) == "Once Once Once "
    assert read_text(await ask(AssistantAgent("b", folder, adapter))) == "Once "


async def test_a_tool_that_is_not_there_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_files(tmp_path, a="---\ntools: [search, look*]\n---\nYou look.")
    agent = AssistantAgent("a", folder, ScriptedAdapter(say("1"), say("2")))
    await ask(agent)
    await ask(agent)
    assert [record.message for record in caplog.records] == [
        "The assistant 'a' names a tool that is not there: search."
    ]


async def test_an_assistant_with_a_budget_reads_what_fits(tmp_path: Path) -> None:
    folder = write_files(tmp_path, a="---\nbudget: 300\n---\nYou look.")
    earlier = [
        TextMessage(id=f"m{at}", role="user" if at % 2 else "assistant", content="word " * 30)
        for at in range(20)
    ]
    adapter = ScriptedAdapter(call("look", "{}"), say("Seen."))
    tools = [build_tool("look", "fact " * 5000)]
    assert read_text(await ask(AssistantAgent("a", folder, adapter), *earlier, actions=tools))
    first, second = adapter.requests
    assert [message.id for message in first.messages[1:]][-2:] == ["m19", "q"]
    assert 3 <= len(first.messages) < 10
    result = second.messages[-1].result  # pyright: ignore
    assert result.endswith("…")
    assert len(result) < 600


async def test_a_budget_that_leaves_no_room_is_an_error_that_says_why(tmp_path: Path) -> None:
    folder = write_files(tmp_path, a="---\nbudget: 3\n---\nYou look at what there is.")
    with pytest.raises(LimitExceeded) as caught:
        await ask(AssistantAgent("a", folder, ScriptedAdapter()))
    assert "The budget of the assistant 'a' is 3 tokens." in str(caught.value)


def test_names_are_accepted_with_and_without_their_prefix(tmp_path: Path) -> None:
    boss = "---\nname: common.Agent.boss\nhandoffs: [{label: go, agent: common.Agent.b}]\n---\nHi"
    assert [*write_files(tmp_path, a=boss, b="Hi").definitions] == ["boss", "b"]


@in_one_test(
    ("files", "message"),
    [
        ({}, "has no assistants"),
        ({"a": b"\xff\xfe"}, "it is not UTF-8 text"),
        ({"a": b"Hi " * 100_000}, "the file is larger than 256 kB"),
        ({"a": b"---\nname: b\n---\nHi", "b": b"Hi"}, "has the name 'b', too"),
        ({"a": b"---\nhandoffs: [{label: x, agent: c}]\n---\nHi"}, "hands off to 'c', which is"),
        ({"a": b"---\nhandoffs: [{label: '', agent: a}]\n---\nHi"}, "handoffs.0.label: "),
        ({"a": b"---\nmodel: m\n---\n\n{{ 1|no }}"}, r"a.agent.md:5: No filter named 'no'\.$"),
        ({"a": b"{{ " + b"(" * 3000 + b")" * 3000 + b" }}"}, "a.agent.md:1: .* nested too deep"),
        ({"a": b"{{ " + b"9" * 9000 + b" }}"}, "too large a number"),
    ],
)
def test_a_folder_that_cannot_be_served_says_why(
    tmp_path: Path, files: Mapping[str, bytes], message: str
) -> None:
    for name, data in files.items():
        (tmp_path / f"{name}.agent.md").write_bytes(data)
    with pytest.raises(ConfigurationFailed, match=message):
        AssistantFolder(tmp_path).load()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFailed, match="There is no folder of assistants"):
        AssistantFolder(tmp_path / "none").load()


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.agent.md").mkdir()
    with pytest.raises(ConfigurationFailed, match="it cannot be read: Is a directory"):
        AssistantFolder(tmp_path).load()


async def test_a_file_that_breaks_leaves_everything_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_files(tmp_path, a="You are a.")
    assert not await folder.refresh()
    (tmp_path / "a.agent.md").write_text("You are {{ nobody")
    assert not await folder.refresh()
    assert not await folder.refresh()  # and says it once
    assert folder.definitions["a"].body == "You are a."
    assert [record.message.partition(".agent.md")[2] for record in caplog.records] == [
        ":1: unexpected end of template, expected 'end of print statement'."
    ]
    (tmp_path / "a.agent.md").write_text("You are another.")
    assert await folder.refresh()
    assert folder.definitions["a"].body == "You are another."


@in_one_test(
    ("body", "message"),
    [
        ("{{ usr }}", "a.agent.md:1: 'usr' is undefined"),
        ("{{ user.__class__.__mro__ }}", "'__class__' of 'str' object is unsafe.$"),
        ("---\nmodel: m\n---\nYou are a.\n{{ user / 2 }}", ":5: the template fails: unsupported"),
        ("{{ 'x' * 150000 }}{{ 'x' * 150000 }}", "it makes more than 200000 characters.$"),
    ],
)
async def test_a_template_that_fails_ends_the_run_with_a_sentence(
    tmp_path: Path, body: str, message: str
) -> None:
    agent = AssistantAgent("a", write_files(tmp_path, a=body), ScriptedAdapter(say("Hi.")))
    with pytest.raises(ConfigurationFailed, match=message) as caught:
        await ask(agent)
    assert caught.value.public == (
        "The instructions of the assistant cannot be written. The server's log says why."
    )


@in_one_test(
    "body",
    [
        "{{ 'x' * 10**10 }}",
        "{{ 10 ** (10**8) }}",
        "{{ 2 ** 9000 * 2 ** 9000 }}",
        "{{ ('a' * 10**6,) * 10**6 }}",
        "{{ 'a'.center(10000000000) }}",
        "{{ 'a'|center(10000000000) }}",
        "{{ ['a']|map('center', 10000000000)|list }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '%1000000000d'|format(1) }}",
        "{{ '{:1000000000d}'.format(1) }}",
        "{{ '{a:{b}}'.format_map({'a': 1, 'b': 10**9}) }}",
        "{{ (1).to_bytes(10000000000, 'big')|length }}",
        "{{ 1|round(1000000000, 'ceil') }}",
        "{{ []|slice(10**9)|list|length }}",
        "{{ ('a' * 1000)|replace('a', 'b' * 1000)|replace('b', 'c' * 1000)|length }}",
        "{% set a = 'x' %}" + "{% set a = a ~ a %}" * 40,
        "{% set a = 'x' %}" + "{% set a = a + a %}" * 40,
        "{% set a = [1] %}" + "{% set a = [a, a] %}" * 60 + "{{ a|string|length }}",
        "{% set a = [1] * 1000 %}" + "{% for b in a %}" * 4 + "{% endfor %}" * 4,
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}"
        "{{ m(60) }}",
        "{% macro m() %}{{ caller() }}{% endmacro %}{% set a %}{% for a in [1] * 99999 %}"
        "{% call m() %}" + "long" * 999 + "{% endcall %}{% endfor %}{% endset %}",
    ],
)
async def test_a_template_cannot_take_the_memory_or_the_time_of_a_server(
    tmp_path: Path, body: str
) -> None:
    folder = write_files(tmp_path, a=body)  # read without being computed
    agent = AssistantAgent("a", folder, ScriptedAdapter(say("Hi.")))
    with pytest.raises(ConfigurationFailed, match=r"too much work or memory|too large a number"):
        await ask(agent)


async def test_a_template_may_do_what_instructions_need(tmp_path: Path) -> None:
    body = (
        "{% macro item(t) %}<{{ t }}{{ caller() }}>{% endmacro %}"
        "{% for one in context %}{{ loop.index }}/{{ loop.length }} {{ one.value|truncate(9) }}; "
        "{% endfor %}{% call item(user) %}!{% endcall %} {{ ['b', 'a']|sort|join(', ') }} "
        "{{ '%d'|format(1700000000) }} {{ '%d' % 1700000000 }} {{ '{:,}'.format(1700000000) }} "
        "{{ '{a:>3}'.format_map({'a': 1}) }} {{ 2 ** 10 * 3 }} {{ '-' * 5 ~ 1 }} "
        "{{ {'a': 1}|tojson }} {{ 3.14159|round(2) }} {{ 'a-b'.replace('-', '+') }}"
    )
    text = render_template(
        body, "a.agent.md", {"user": "ann", "context": [{"value": "v" * 300_000}, {"value": "w"}]}
    )
    assert text == (
        "1/2 vvvvvv...; 2/2 w; <ann!> a, b 1700000000 1700000000 1,700,000,000   1 3072 -----1 "
        '{"a": 1} 3.14 a+b'
    )


async def test_a_sub_agent_is_stopped_with_the_run(tmp_path: Path) -> None:
    has_begun, is_stopped = asyncio.Event(), asyncio.Event()

    async def hang(values: Mapping[str, Any], context: ActionContext) -> None:
        has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            is_stopped.set()

    folder = write_files(tmp_path, boss=BOSS, helper="You look.")
    adapter = ScriptedAdapter(
        call("run_sub_agent", {"agent": "helper", "prompt": "Look."}), call("hang")
    )
    agent = AssistantAgent("boss", folder, adapter)
    run = asyncio.create_task(ask(agent, actions=[Action(name="hang", run=hang)]))
    await has_begun.wait()
    run.cancel()
    await asyncio.wait([run])
    await is_stopped.wait()
    assert run.cancelled()


def test_an_assistant_goes_on_after_a_crash_unless_it_may_ask_others(tmp_path: Path) -> None:
    alone = write_files(tmp_path, boss="---\ntools: look\n---\nYou lead.")
    assert AssistantAgent("boss", alone, ScriptedAdapter()).is_replayable
    folder = write_files(
        tmp_path,
        boss="---\ntools: run_sub_agent\n---\nYou lead.",
        safe="---\nidempotent: true\ntools: run_sub_agent\n---\nYou look.",
        writer="---\ntools: look\n---\nYou write.",
        door="---\ntools: look\nhandoffs: [{label: Write, agent: writer}, {label: Lead, agent: "
        "clerk}]\n---\nYou ask.",
        clerk="---\ntools: look\nhandoffs: [{label: Back, agent: door}, {label: Lead, agent: boss}]"
        "\n---\nYou ask.",
    )

    def goes_on(name: str) -> bool:
        return AssistantAgent(name, folder, ScriptedAdapter()).is_replayable

    assert not goes_on("boss")
    assert goes_on("safe")
    assert goes_on("writer")  # that others ask others is nothing to it
    assert not goes_on("door")  # the conversation may be handed over to who asks others
