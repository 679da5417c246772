"""Small graphs on a real LangGraph server; their model needs no key and no network.

What a person writes decides what a graph does, so that each test can ask for what it needs.
"""

import asyncio
import operator
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

from copilotkit.langgraph import (
    CopilotKitState,
    copilotkit_customize_config,
    copilotkit_emit_message,
    copilotkit_emit_state,
    copilotkit_emit_tool_call,
    copilotkit_exit,
    copilotkit_interrupt,
)
from copilotkit.types import IntermediateStateConfig
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_stream_writer

# langgraph has types, but says so in none of its folders
from langgraph.graph import END, START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.graph.state import CompiledStateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.types import interrupt


class Model(BaseChatModel):
    """Says `words` one by one, then makes `calls`, their arguments in pieces."""

    words: Sequence[str] = ()
    thoughts: Sequence[str] = ()
    calls: Sequence[dict[str, Any]] = ()
    pause: float = 0
    """Seconds between two words."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        calls = [{**call, "args": {"color": "red"}} for call in self.calls]
        message = AIMessage("".join(self.words), tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for thought in self.thoughts:
            yield _piece([{"type": "thinking", "thinking": thought, "index": 0}])
        for word in self.words:
            await asyncio.sleep(self.pause)
            yield _piece(word)
        for index, call in enumerate(self.calls):
            for at, piece in enumerate(call["pieces"]):
                first = {"name": call["name"], "id": call["id"]} if at == 0 else {}
                chunk = {"name": None, "id": None, "args": piece, "index": index, **first}
                yield _piece("", tool_call_chunks=[{**chunk, "type": "tool_call_chunk"}])
        usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
        yield _piece("", usage_metadata=usage, response_metadata={"finish_reason": "stop"})


def _piece(content: Any, **more: Any) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=AIMessageChunk(content=content, **more))


def _heard(state: Any) -> str:
    said = [message for message in state["messages"] if message.type == "human"]
    content = said[-1].content if said else ""
    return content if isinstance(content, str) else content[0]["text"]


class Counting(CopilotKitState):
    topic: str
    turns: Annotated[int, operator.add]


async def answer(state: Counting, config: RunnableConfig) -> dict[str, Any]:
    heard = _heard(state)
    pause = 0.02 if "slowly" in heard else 0
    words = ["You ", "said: ", *[f"{word} " for word in heard.split()]]
    if "slowly" in heard:
        words += [f"{number} " for number in range(60)]
    reply = await Model(words=words, pause=pause).ainvoke(state["messages"], config)
    return {"messages": [reply], "topic": heard, "turns": 1}


async def forever(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    words = [f"{number} " for number in range(100_000)]
    answer = await Model(words=words, pause=0.01).ainvoke([], config)
    await asyncio.Event().wait()  # without a reader, the words come all at once
    return {"messages": [answer]}


async def think(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    model = Model(thoughts=["Let me ", "think."], words=["It ", "is 4."])
    return {"messages": [await model.ainvoke([], config)]}


class Asking(MessagesState):
    answers: Annotated[list[str], operator.add]


async def ask(state: Asking, config: RunnableConfig) -> dict[str, Any]:
    name = interrupt("What is your name?")
    reply = await Model(words=["Hello ", f"{name}."]).ainvoke([], config)
    return {"messages": [reply], "answers": [str(name)]}


async def ask_left(state: Asking) -> dict[str, Any]:
    return {"answers": [f"left {interrupt({'question': 'Left?', 'message': 'Left hand?'})}"]}


async def ask_right(state: Asking) -> dict[str, Any]:
    return {"answers": [f"right {interrupt({'question': 'Right?'})}"]}


async def approve(state: Asking) -> dict[str, Any]:
    answer, _ = copilotkit_interrupt(message="Shall I send it?")
    return {"answers": [answer], "messages": [AIMessage(f"You said {answer}.")]}


async def paint(state: CopilotKitState, config: RunnableConfig) -> dict[str, Any]:
    """Call the first action of the browser, and repeat what came of it."""
    last = state["messages"][-1]
    if isinstance(last, ToolMessage):
        model = Model(words=["The ", "browser ", f"said {last.content}."])
    else:
        name = state["copilotkit"]["actions"][0]["name"]
        call = {"id": f"call-{len(state['messages'])}", "name": name}
        model = Model(words=["Let me. "], calls=[{**call, "pieces": ['{"color":', '"red"}']}])
    return {"messages": [await model.ainvoke([], config)]}


async def emit(state: CopilotKitState, config: RunnableConfig) -> dict[str, Any]:
    """Say things by hand, and keep to itself what the model says."""
    await copilotkit_emit_message(config, "Step one.")
    await copilotkit_emit_state(config, {"progress": 1})
    await copilotkit_emit_tool_call(config, name="show", args={"n": 1}, tool_call_id="by-hand")
    get_stream_writer()({"note": "from a writer"})
    quiet = copilotkit_customize_config({**config}, emit_messages=False, emit_tool_calls="loud")
    quiet_call = {"id": "quiet-call", "name": "quiet", "pieces": ["{}"]}
    loud_call = {"id": "loud-call", "name": "loud", "pieces": ["{}"]}
    await Model(words=["secret"], calls=[quiet_call, loud_call]).ainvoke([], quiet)
    await copilotkit_exit(config)
    return {"messages": [AIMessage("Step one.")]}


class Planning(CopilotKitState):
    steps: list[str]


async def plan(state: Planning, config: RunnableConfig) -> dict[str, Any]:
    """Show the argument of a call as state while it is written."""
    wish: IntermediateStateConfig = {
        "state_key": "steps",
        "tool": "write_plan",
        "tool_argument": "steps",
    }
    showing = copilotkit_customize_config({**config}, emit_intermediate_state=[wish])
    pieces = ['{"steps": ["dig"', ', "plant"', "]}"]
    call = {"id": "plan-call", "name": "write_plan", "pieces": pieces}
    await Model(calls=[call]).ainvoke([], showing)
    return {"steps": ["dig", "plant"], "messages": [AIMessage("There is a plan.")]}


async def route(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    """Ask a model where to go, and keep its choice to itself."""
    await Model(calls=[{"id": "choice", "name": "Router", "pieces": ["{}"]}]).ainvoke([], config)
    return {"messages": [AIMessage("Off it goes.")]}


async def fail(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    await Model(words=["Half ", "a "]).ainvoke([], config)
    raise ValueError("no such table: secret_prices")


async def report(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    """Say how it was configured."""
    given, limit = config.get("configurable", {}), config.get("recursion_limit")
    told = f"tone={given.get('tone')} pace={given.get('pace')} limit={limit}"
    return {"messages": [AIMessage(told)]}


def _graph(schema: Any, **nodes: Any) -> CompiledStateGraph[Any]:
    """Return a graph of nodes in a row."""
    graph = StateGraph(schema)
    graph.add_sequence(list(nodes.items()))
    graph.add_edge(START, next(iter(nodes)))
    graph.add_edge(list(nodes)[-1], END)
    return graph.compile()


def _side_by_side(schema: Any, **nodes: Any) -> CompiledStateGraph[Any]:
    graph = StateGraph(schema)
    for name, node in nodes.items():
        graph.add_node(name, node)
        graph.add_edge(START, name)
        graph.add_edge(name, END)
    return graph.compile()


chat = _graph(Counting, answer=answer)
endless = _graph(MessagesState, count=forever)
thinker = _graph(MessagesState, think=think)
asker = _graph(Asking, ask=ask)
right_hand = _graph(Asking, ask=ask_right)
two_questions = _side_by_side(Asking, left=ask_left, right=ask_right)
approver = _graph(Asking, approve=approve)
painter = _graph(CopilotKitState, paint=paint)
emitter = _graph(CopilotKitState, emit=emit)
planner = _graph(Planning, plan=plan)
router = _graph(MessagesState, route=route)
failing = _graph(MessagesState, fail=fail)
reporter = _graph(MessagesState, report=report)


async def done(state: Counting) -> dict[str, Any]:
    return {"topic": "done"}


nested = _graph(Counting, inner=_graph(Counting, answer=answer), done=done)
