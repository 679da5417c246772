"""The LLM service: completions and embeddings of the runtime's models."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api.action import Action
from copilot_runtime.api.adapter import Adapter, Embedder
from copilot_runtime.api.agent import Agent
from copilot_runtime.api.events import Event, Events, Usage
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    Message,
    ResultMessage,
    Role,
    TextMessage,
    new_id,
)
from copilot_runtime.api.run_input import Parameters, RunInput
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.base.errors import ConfigurationFailed, Misuse
from copilot_runtime.extensions.grpc.protos import llm_pb2
from copilot_runtime.extensions.grpc.runs import collect_run
from copilot_runtime.extensions.grpc.service import (
    Call,
    RpcMethod,
    RpcService,
    check_text,
    read_struct,
)
from copilot_runtime.extensions.grpc.services.agent import sum_usage
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.transports.transport import Services

_MOST_TEXTS = 1000
_MOST_TOOLS = 500
_LONGEST_TEXT = 200_000
_ROLES = frozenset(get_args(Role))


class LlmService(RpcService):
    """`copilot.llm.v1.Llm`"""

    descriptor = llm_pb2.DESCRIPTOR.services_by_name["Llm"]

    def __init__(self, services: Services) -> None:
        chat = services.runs.chat
        if not isinstance(chat, DirectAgent):
            raise ConfigurationFailed("grpc.services names 'llm', and there is no model.")
        self._adapter = chat.adapter
        self._runs = services.program_runs
        self._conversations = services.runs
        self._knowledge = services.parts.find(Knowledge)
        self._most = services.settings.max_messages

    def list_methods(self) -> Mapping[str, RpcMethod]:
        completions = RpcMethod(run=self.create_completions, scope="runs:start", starts_run=True)
        if self._knowledge is None:
            return {"CreateCompletions": completions}
        return {
            "CreateCompletions": completions,
            "CreateEmbeddings": RpcMethod(run=self.create_embeddings, scope="runs:start"),
        }

    async def create_embeddings(
        self,
        request: llm_pb2.CreateEmbeddingsRequest,
        call: Call,  # noqa: ARG002
    ) -> llm_pb2.CreateEmbeddingsResponse:
        """Return vectors of the knowledge's embedder."""
        if not 1 <= len(request.input) <= _MOST_TEXTS:
            raise Misuse(f"input has 1 to {_MOST_TEXTS} texts.")
        assert self._knowledge is not None
        embedder: Embedder = self._knowledge.embedder
        texts = [check_text("input", text, _LONGEST_TEXT) for text in request.input]
        vectors = await embedder.embed(texts)
        data = [
            llm_pb2.Embedding(index=index, embedding=vector.tolist())
            for index, vector in enumerate(vectors)
        ]
        return llm_pb2.CreateEmbeddingsResponse(model=embedder.model, data=data)

    async def create_completions(
        self, request: llm_pb2.CreateCompletionsRequest, call: Call
    ) -> llm_pb2.CreateCompletionsResponse:
        """Return one answer of the model, without tool execution or retrieval."""
        if not 1 <= len(request.messages) <= self._most:
            raise Misuse(f"messages has 1 to {self._most} messages.")
        if len(request.tools) > _MOST_TOOLS:
            raise Misuse(f"tools has at most {_MOST_TOOLS} tools.")
        agent = CompletionAgent(self._adapter, [*map(_decode_tool, request.tools)])
        run = self._runs.build_run(
            call.caller,
            messages=decode_messages(request.messages),
            operation="CreateCompletions",
            parameters=Parameters(
                model=request.model or None,
                temperature=request.temperature if request.HasField("temperature") else None,
                max_tokens=request.max_tokens if request.HasField("max_tokens") else None,
            ),
        )
        events = await collect_run(self._conversations, run, agent)
        return _encode_completion(run.run_id, events)


class CompletionAgent(Agent):
    """Answers with a single model request: tool calls are returned, not executed."""

    executes_actions = True

    def __init__(self, adapter: Adapter, tools: Sequence[Action]) -> None:
        self._chat = DirectAgent(adapter, max_turns=1, shared_state=False)
        self._tools = tools

    def check(self, run: RunInput) -> None:
        """Raise the adapter's errors that need no request, such as a missing key."""
        self._chat.check(run)

    def run(self, run: RunInput) -> Events:
        """Yield the events of one model request with exactly these tools."""
        return self._chat.run(replace(run, actions=self._tools))


def decode_messages(messages: Sequence[llm_pb2.Message]) -> list[Message]:
    """Return messages in OpenAI's format as ours. Raises `Misuse`."""
    found: list[Message] = []
    names: dict[str, str] = {}
    for message in messages:
        role: Any = message.role
        if role not in _ROLES:
            raise Misuse(f"The role of a message is one of {', '.join(sorted(_ROLES))}.")
        if role == "tool":
            call_id = message.tool_call_id
            if call_id not in names:
                raise Misuse(f"No message before calls a tool as {call_id[:100]!r}.")
            result = ResultMessage(
                id=new_id(), call_id=call_id, name=names[call_id], result=message.content
            )
            found.append(result)
            continue
        parent = new_id()
        if message.content or not message.tool_calls:
            found.append(TextMessage(id=parent, role=role, content=message.content))
        for one in message.tool_calls:
            names[one.id] = one.function.name
            found.append(
                ActionExecutionMessage(
                    id=one.id,
                    name=one.function.name,
                    arguments=one.function.arguments or "{}",
                    parent_id=parent,
                )
            )
    return found


def _decode_tool(tool: llm_pb2.ToolDefinition) -> Action:
    if not tool.function.name:
        raise Misuse("A tool has a name.")
    return Action(
        name=check_text("name of a tool", tool.function.name, 200),
        description=tool.function.description,
        parameters={"type": "object", **read_struct(tool.function.parameters)},
    )


def _encode_completion(id: str, events: Sequence[Event]) -> llm_pb2.CreateCompletionsResponse:
    messages = fold_messages(events)
    texts = [one.content for one in messages if isinstance(one, TextMessage)]
    calls = [
        llm_pb2.ToolCall(
            id=one.id,
            type="function",
            function=llm_pb2.FunctionCall(name=one.name, arguments=one.arguments),
        )
        for one in messages
        if isinstance(one, ActionExecutionMessage)
    ]
    usage = [event for event in events if isinstance(event, Usage)]
    reason = usage[-1].stop_reason if usage else None
    message = llm_pb2.Message(role="assistant", content="".join(texts), tool_calls=calls)
    choice = llm_pb2.Choice(
        message=message, finish_reason=reason or ("tool_calls" if calls else "stop")
    )
    return llm_pb2.CreateCompletionsResponse(
        id=id,
        model=usage[-1].model if usage else "",
        choices=[choice],
        usage=llm_pb2.Usage(**sum_usage(events)),
    )
