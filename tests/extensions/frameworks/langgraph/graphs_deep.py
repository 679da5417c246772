"""Agents that delegate to subagents by a tool `task`, with the metadata of deepagents.

deepagents itself is not installed. Like its graphs, these are agents of LangChain with a name, and
the tool has its arguments and returns its kind of command.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, AgentState, before_model, wrap_tool_call
from langchain.tools import ToolRuntime
from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.tools import BaseTool, tool
from langgraph.types import Command, interrupt

from tests.extensions.frameworks.langgraph.graphs import Model


class Scripted(Model):
    """Answers with the next of `turns`, by how many answers the conversation has."""

    turns: Sequence[dict[str, Any]] = ()

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _turn(self, messages: list[BaseMessage]) -> Model:
        at = sum(message.type == "ai" for message in messages)
        return Model(**self.turns[min(at, len(self.turns) - 1)])

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return self._turn(messages)._generate(messages, *args, **kwargs)

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        async for piece in self._turn(messages)._astream(messages, *args, **kwargs):
            yield piece


def _call(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "name": name, "pieces": [arguments[:3], arguments[3:]]}


def _task(id: str, kind: str) -> dict[str, Any]:
    return _call(id, "task", f'{{"description": "Look it up", "subagent_type": "{kind}"}}')


@tool
def look_up(word: str) -> str:
    """Return what is known of a word."""
    return f"{word}: known"


@tool
def fail_to_look_up(word: str) -> str:
    """Fail."""
    raise RuntimeError("secret_index")


@tool
def ask_person(word: str) -> str:
    """Ask the person."""
    return f"The person: {interrupt(f'What is {word}?')}"


def _subagent(name: str, tools: Sequence[BaseTool], turns: Sequence[dict[str, Any]]) -> Any:
    return create_agent(Scripted(turns=turns), tools=list(tools), name=name)


def _task_tool(subagents: dict[str, Any]) -> BaseTool:
    @tool
    async def task(description: str, subagent_type: str, runtime: ToolRuntime[Any, Any]) -> Any:
        """Delegate to a subagent."""
        if subagent_type not in subagents:
            return f"There is no {subagent_type}"
        result = await subagents[subagent_type].ainvoke({"messages": [HumanMessage(description)]})
        message = ToolMessage(result["messages"][-1].text, tool_call_id=runtime.tool_call_id)
        return Command(update={"messages": [message]})

    return task


def _deep(subagents: dict[str, Any], calls: Sequence[dict[str, Any]], **options: Any) -> Any:
    turns = [{"words": ["Let me ", "see. "], "calls": calls}, {"words": ["It is ", "done."]}]
    return create_agent(Scripted(turns=turns), tools=[_task_tool(subagents)], **options)


researcher = _subagent(
    "researcher",
    [look_up],
    [{"calls": [_call("look", "look_up", '{"word": "oak"}')]}, {"words": ["A ", "tree."]}],
)
deep = _deep({"researcher": researcher}, [_task("task-1", "researcher")])
lead = _deep({"researcher": researcher}, [_task("inner", "researcher")], name="lead")
team = _deep(
    {"researcher": researcher, "lead": lead}, [_task("left", "researcher"), _task("right", "lead")]
)

asking_researcher = _subagent(
    "researcher",
    [ask_person],
    [{"calls": [_call("ask", "ask_person", '{"word": "oak"}')]}, {"words": ["A ", "tree."]}],
)
deep_asking = _deep({"researcher": asking_researcher}, [_task("task-1", "researcher")])


@wrap_tool_call
async def recover(request: Any, handler: Callable[[Any], Any]) -> Any:
    try:
        return await handler(request)
    except RuntimeError:
        return ToolMessage("It failed.", tool_call_id=request.tool_call["id"])


failing_researcher = _subagent(
    "researcher",
    [fail_to_look_up],
    [{"calls": [_call("look", "fail_to_look_up", '{"word": "oak"}')]}],
)
deep_failing = _deep(
    {"researcher": failing_researcher}, [_task("task-1", "researcher")], middleware=[recover]
)


class Plan(AgentState[Any]):
    plan: str


def _planner(plan: str) -> AgentMiddleware[Any, Any]:
    @before_model(state_schema=Plan)
    def write(state: Plan, runtime: Any) -> dict[str, Any]:
        return {"plan": plan}

    return write


planning_researcher = create_agent(
    Scripted(turns=[{"words": ["A ", "tree."]}]), middleware=[_planner("theirs")], name="researcher"
)
deep_planning = _deep(
    {"researcher": planning_researcher},
    [_task("task-1", "researcher")],
    middleware=[_planner("ours")],
)
