"""A test client that talks to an application as CopilotKit's frontends do."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self
from uuid import uuid4

from starlette.types import ASGIApp

from copilot_runtime.actions.execute import serialize_result
from copilot_runtime.actions.functions import as_actions
from copilot_runtime.api.action import Action
from copilot_runtime.api.agent import DEFAULT_AGENT
from copilot_runtime.api.argument_checks import check_list, check_mapping
from copilot_runtime.api.events import Event, Interrupt
from copilot_runtime.api.messages import Message, ResultMessage, TextMessage, new_id
from copilot_runtime.api.run_input import AgentInput, ContextItem, Resume, RunInput
from copilot_runtime.app.app import CopilotRuntime
from copilot_runtime.app.server import find_endpoint
from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import to_text
from copilot_runtime.http.errors import parse_url
from copilot_runtime.testing.connection import AppConnection, Response, UrlConnection, connect
from copilot_runtime.testing.protocols import Answer, ToolCall, pair_calls, send_agui, send_graphql
from copilot_runtime.transports.router import normalize_path

Protocol = Literal["agui", "graphql"]

_SENDERS = {"agui": send_agui, "graphql": send_graphql}
_DEFAULT_PATH = "/graphql"
_MOST_REQUESTS = 25
"""Maximum number of requests per message: a model that calls tools forever must not hang a test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The complete reply to a message; the next input of the user is expected."""

    text: str
    """The texts of the answer, separated by empty lines."""
    tool_calls: Sequence[ToolCall] = ()
    """All tool calls of server and frontend, in order."""
    interrupts: Sequence[Interrupt] = ()
    """Questions to the user; `Client.resume` answers them."""
    state: Any = None
    """The state shared by frontend and agent, after this answer."""
    messages: Sequence[Message] = field(default=(), repr=False)
    """All messages of the answer."""
    events: Sequence[Event] = field(default=(), repr=False)
    """All received AG-UI events, including activities, sub-agents and token usage."""

    @property
    def open_calls(self) -> list[ToolCall]:
        """Return the calls that wait for the frontend; `Client.answer` answers them."""
        return [call for call in self.tool_calls if call.result is None]


class Client:
    """A conversation with an application.

    >>> async with Client(runtime) as client:
    ...     chat = await client.say("Hi")
    ...     assert chat.text == "Hello."

    Args:
        target: A `CopilotRuntime` or an ASGI application, which is called in this process with its
            lifespan; or the URL of a runtime, the same as the `runtimeUrl` of `<CopilotKit>`.
        protocol: `agui` for CopilotKit 1.50 and later, `graphql` for 1.10.
        path: The path of the runtime in an application. Default: that of the settings of a
            `CopilotRuntime`, or of `mount`, else `/graphql`.
        agent: The name of the agent. Default: the agent for requests that name none.
        tools: The frontend's tools: functions, which are called here like a frontend's own, and
            `Action` values without `run`, whose calls wait for `answer`.
        context: The context that the frontend sends to the model.
        state: The state shared by frontend and agent.
        headers: Headers of each request, such as credentials.
        properties: The properties that the frontend sends with each message.
        thread_id: The identifier of the conversation. Default: a new one.
        timeout: Timeout of a request, in seconds.
    """

    def __init__(
        self,
        target: CopilotRuntime | ASGIApp | str,
        *,
        protocol: Protocol = "agui",
        path: str | None = None,
        agent: str | None = None,
        tools: Sequence[Action | Callable[..., Any]] = (),
        context: Sequence[ContextItem] = (),
        state: Any = None,
        headers: Mapping[str, str] | None = None,
        properties: Mapping[str, Any] | None = None,
        thread_id: str | None = None,
        timeout: float = 60.0,
    ) -> None:
        if protocol not in _SENDERS:
            raise Misuse(f"There is no protocol {protocol!r}. Known: {', '.join(_SENDERS)}.")
        self.protocol: Protocol = protocol
        self.path, self._target = _find_path(target, path)
        self.agent = agent
        check_list("tools", tools, "set_color")
        self.tools = as_actions(tools)
        self.context = context
        self.state = state
        self.headers = {name.lower(): value for name, value in (headers or {}).items()}
        self.properties = dict(properties or {})
        self.thread_id = thread_id or str(uuid4())
        self.messages: Sequence[Message] = []
        """The conversation as the frontend has it."""
        self.interrupts: Sequence[Interrupt] = ()
        """The questions that wait for `resume`."""
        self._timeout = timeout
        self._connection: AppConnection | UrlConnection | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._connection = await self._stack.enter_async_context(
            connect(self._target, self._timeout)
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection = None
        await self._stack.aclose()

    async def say(self, text: str) -> Reply:
        """Send a user message and return the reply.

        Functions in `tools` that the model calls are executed, and their results sent. Raises
        `ReplyFailed` if the message is refused or its answer fails.
        """
        question = TextMessage(id=new_id(), role="user", content=text)
        self.messages = [*self.messages, question]
        return await self._converse(())

    async def answer(self, results: Mapping[str, Any]) -> Reply:
        """Send the results of calls that wait for the frontend, by call identifier or tool name.

        Each waiting call needs a result. Raises the errors of `say`.
        """
        waiting = _open_calls(_last_exchange(self.messages))
        names = {name for call in waiting for name in (call.id, call.name)}
        open_names = ", ".join(call.name for call in waiting) or "none"
        check_mapping("results", results)
        if strangers := [name for name in results if name not in names]:
            raise Misuse(f"No call waits for {strangers[0]!r}. Those that wait: {open_names}.")
        messages: list[Message] = []
        for call in waiting:
            key = call.id if call.id in results else call.name
            if key not in results:
                raise Misuse(
                    f"The call of {call.name!r} has no result. All that wait are answered at once."
                )
            messages.append(_build_result(call, results[key]))
        if not messages:
            raise Misuse("No call waits for an answer.")
        self.messages = [*self.messages, *messages]
        return await self._converse(())

    async def resume(self, *answers: Any) -> Reply:
        """Answer the questions of the last reply, in their order, and return the new reply.

        Raises the errors of `say`. The questions then stay open: the server may have rejected the
        form of an answer.
        """
        if len(answers) != len(self.interrupts) or not answers:
            raise Misuse(
                f"{len(self.interrupts)} questions wait for an answer, not {len(answers)}."
            )
        return await self._converse(
            [
                Resume(
                    to_text(interrupt.value),
                    to_text(answer),
                    interrupt_id=interrupt.interrupt_id or None,
                    payload=answer,
                )
                for interrupt, answer in zip(self.interrupts, answers, strict=True)
            ]
        )

    def another(
        self,
        *,
        protocol: Protocol | None = None,
        agent: str | None = None,
        tools: Sequence[Action | Callable[..., Any]] | None = None,
        context: Sequence[ContextItem] | None = None,
        state: Any = None,
        headers: Mapping[str, str] | None = None,
        properties: Mapping[str, Any] | None = None,
        thread_id: str | None = None,
    ) -> "Client":
        """Return another conversation with the same application, for example of another user.

        Arguments that are not given are copied, except messages, state and `thread_id`. The new
        client is ready to use, and is closed together with this one.
        """
        other = Client(
            self._target,
            protocol=protocol or self.protocol,
            path=None if isinstance(self._target, str) else self.path,
            agent=self.agent if agent is None else agent,
            tools=self.tools if tools is None else tools,
            context=self.context if context is None else context,
            state=state,
            headers=self.headers if headers is None else headers,
            properties=self.properties if properties is None else properties,
            thread_id=thread_id,
            timeout=self._timeout,
        )
        other._connection = self._get_connection()
        return other

    async def request(
        self,
        method: str,
        path: str,
        json: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Send any other request, such as `GET /health`, with this client's headers."""
        normalize_path(path)  # or raise
        body = b"" if json is None else dumps(json)
        kind = {} if json is None else {"content-type": "application/json"}
        return await self._get_connection().request(
            method, path, body, {**kind, **self.headers, **(headers or {})}
        )

    async def _converse(self, resume: Sequence[Resume]) -> Reply:
        """Send the conversation until user input is expected; return the new part as a reply."""
        messages: list[Message] = []
        events: list[Event] = []
        for _ in range(_MOST_REQUESTS):
            answer = await self._send(resume)
            resume = ()
            events += answer.events
            messages += answer.messages
            results = [] if answer.failure else await self._call_tools(answer)
            messages += results
            self.messages = [
                *(
                    [*self.messages, *answer.messages]
                    if answer.conversation is None
                    else answer.conversation
                ),
                *results,
            ]
            if answer.state is not None:
                self.state = answer.state
            if answer.failure is not None:
                answer.failure.reply = self._build_reply(messages, answer.interrupts, events)
                raise answer.failure
            self.interrupts = answer.interrupts
            if not self._is_next(answer, results):
                return self._build_reply(messages, answer.interrupts, events)
        raise Misuse(f"The model called tools {_MOST_REQUESTS} times without an answer.")

    async def _send(self, resume: Sequence[Resume]) -> Answer:
        states = {} if self.state is None else {self.agent or DEFAULT_AGENT: self.state}
        run = RunInput(
            thread_id=self.thread_id,
            run_id=str(uuid4()),
            messages=self.messages,
            agent=self.agent,
            actions=[_strip(tool) for tool in self.tools],
            context=self.context,
            properties=self.properties,
            agents={name: AgentInput(state=state) for name, state in states.items()},
            resume=resume,
        )
        send = _SENDERS[self.protocol]
        return await send(self._get_connection(), self.path, run, self.headers)

    async def _call_tools(self, answer: Answer) -> list[Message]:
        """Execute the frontend functions that the model calls, as a frontend would."""
        tools = {tool.name: tool.run for tool in self.tools}
        results: list[Message] = []
        for call in pair_calls(answer.messages):
            run = tools.get(call.name)
            if run is not None and call.result is None:
                context = RunInput(
                    thread_id=self.thread_id, run_id="", messages=self.messages
                ).action_context(call.id)
                results.append(_build_result(call, await run(call.arguments, context)))
        return results

    def _is_next(self, answer: Answer, results: Sequence[Message]) -> bool:
        """Return `True` if a frontend sends another request by itself.

        It does so after its tools, and in v1 also after the server's.
        """
        if answer.interrupts or _open_calls([*answer.messages, *results]):
            return False
        if results:
            return True
        last = answer.messages[-1] if answer.messages else None
        is_v1_chat = self.protocol == "graphql" and self.agent is None
        return is_v1_chat and isinstance(last, ResultMessage)

    def _build_reply(
        self,
        messages: Sequence[Message],
        interrupts: Sequence[Interrupt],
        events: Sequence[Event],
    ) -> Reply:
        texts = [
            message.content
            for message in messages
            if isinstance(message, TextMessage) and message.role == "assistant"
        ]
        return Reply(
            text="\n\n".join(text for text in texts if text),
            tool_calls=pair_calls(messages),
            interrupts=interrupts,
            state=self.state,
            messages=messages,
            events=events,
        )

    def _get_connection(self) -> AppConnection | UrlConnection:
        if self._connection is None:
            raise Misuse("The client is not open: use it as `async with Client(...) as client:`.")
        return self._connection


def _find_path(
    target: CopilotRuntime | ASGIApp | str, path: str | None
) -> tuple[str, ASGIApp | str]:
    """Return the path of the runtime, and its application or URL."""
    if isinstance(target, CopilotRuntime):
        path = path or target.settings.path
        return path, target.lazy_app(path)
    if isinstance(target, str):
        parts = parse_url(target, "URL of a runtime", "Such as http://127.0.0.1:8000/graphql.")
        if path is not None:
            raise Misuse(f"The URL {target!r} has the path already.")
        return parts.path.rstrip("/") or _DEFAULT_PATH, target
    if not _is_application(target):
        raise Misuse(
            f"{target!r} is no CopilotRuntime, no ASGI application and no URL of a runtime. "
            "Write Client(runtime) or Client(app), with the object and not its class or a method."
        )
    endpoint = find_endpoint(target)
    return path or (endpoint.path if endpoint else _DEFAULT_PATH), target


def _is_application(target: Any) -> bool:
    """Return `True` if a target can be called with the three arguments of ASGI."""
    try:
        inspect.signature(target).bind("scope", "receive", "send")
    except (TypeError, ValueError):
        return False
    return not isinstance(target, type)


def _strip(tool: Action) -> Action:
    """Return a tool as the frontend declares it, without its function."""
    return Action(
        name=tool.name,
        description=tool.description,
        parameters=tool.parameters,
        available=tool.available,
    )


def _last_exchange(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages after the last user message."""
    questions = [
        at
        for at, message in enumerate(messages)
        if isinstance(message, TextMessage) and message.role == "user"
    ]
    return messages[questions[-1] + 1 :] if questions else messages


def _open_calls(messages: Sequence[Message]) -> list[ToolCall]:
    return [call for call in pair_calls(messages) if call.result is None]


def _build_result(call: ToolCall, value: Any) -> ResultMessage:
    return ResultMessage(
        id=new_id(), call_id=call.id, name=call.name, result=serialize_result(value)
    )
