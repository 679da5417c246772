"""Files that come to agents: each gets them as before, and its tools find what is in them."""

import json
import threading
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from agents import Agent as SdkAgent
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver

# langgraph has types, but says so in none of its folders
from langgraph.graph import MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from copilot_runtime import ScriptedAdapter
from copilot_runtime.adapters.scripted import say
from copilot_runtime.agents.agui import AguiAgent
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.extensions.knowledge import Knowledge
from tests.agents.remote import FINISHED, STARTED, frame, text
from tests.extensions.frameworks.sdk_model import Output, PlayingModel
from tests.extensions.frameworks.sdk_model import text as sdk_text
from tests.extensions.knowledge.uploads.chat import CSV, EXE, PNG, ask, attach, progress, question
from tests.extensions.knowledge.uploads.test_chat_files import Chat
from tests.extensions.knowledge.uploads.test_route import at, send
from tests.in_one_test import in_one_test
from tests.wire.client import PLAIN, WHEN
from tests.wire.client import chat as v1_chat
from tests.wire.client import user as v1_user

BASE64 = attach(CSV)["source"]["value"]
PICTURE = attach(PNG)["source"]["value"]


class Heard:
    """What agents have got, as one text."""

    def __init__(self) -> None:
        self.text = ""

    def graph(self) -> Any:
        def node(state: MessagesState) -> Any:
            self.text = str(state["messages"])
            return {"messages": [AIMessage("Well.")]}

        graph = StateGraph(MessagesState).add_node("node", node)
        graph.set_entry_point("node")
        return graph.compile(checkpointer=InMemorySaver())

    def sdk(self) -> Any:
        def play(heard: list[Any]) -> Sequence[Output]:
            self.text = str(heard)
            return [sdk_text("Well.")]

        return SdkAgent(name="Desk", model=PlayingModel(play))

    def pydantic(self) -> Any:
        async def play(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
            self.text = str(messages)
            yield "Well."

        return PydanticAgent(FunctionModel(stream_function=play))


@contextmanager
def agui(heard: Heard) -> Generator[AguiAgent]:
    """Serve an AG-UI agent elsewhere, which says one sentence."""
    answer = b"".join(map(frame, [STARTED, *text("a1", "Well."), FINISHED]))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.text = self.rfile.read(int(self.headers["content-length"])).decode()
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield AguiAgent(f"http://127.0.0.1:{server.server_port}/")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def agent_of(kind: str, heard: Heard) -> Generator[Any]:
    if kind == "agui":
        with agui(heard) as agent:
            yield agent
    else:
        yield getattr(heard, kind)()


@in_one_test("kind", ["agui", "graph", "sdk", "pydantic"])
def test_an_agent_gets_the_file_which_is_stored_and_goes_with_the_thread(kind: str) -> None:
    heard = Heard()
    with agent_of(kind, heard) as agent:
        chat = Chat(agents={"it": agent})
        with chat.serve() as client:
            picture = attach(PNG, "a.png", "image")
            picture["source"]["mimeType"] = "image/png"
            asked = question("What is it?", picture, attach(CSV, "prices.csv"))
            events = ask(client, asked, agent="it")
            search = "/graphql/knowledge/search?q=quince+price"
            found = client.get(search, headers={"x-user": "ann"}).json()["results"]
            client.delete("/graphql/threads/t1", headers={"x-user": "ann"}).raise_for_status()

    assert [it["type"] for it in events][-1] == "RUN_FINISHED", events
    assert [it["state"] for it in progress(events)[-1]] == ["stored", "searchable"]
    assert "What is it?" in heard.text
    assert PICTURE[:40] in heard.text or "\\x89PNG" in heard.text
    assert [it["title"] for it in found] == ["prices.csv"]
    assert chat.stored() == []


def test_a_tool_of_an_agent_finds_what_is_in_a_file_of_the_thread() -> None:
    results: list[str] = []

    async def play(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
        parts = [part for it in messages if isinstance(it, ModelRequest) for part in it.parts]
        returned = [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]
        if returned:
            results.append(returned[-1])
            yield "Well."
        else:
            arguments = json.dumps({"input": ["price of a quince"]})
            yield {0: DeltaToolCall("search_content", arguments, tool_call_id="c1")}

    chat = Chat(agents={"it": PydanticAgent(FunctionModel(stream_function=play))})
    with chat.serve() as client:
        ask(client, question("?", attach(CSV, "prices.csv")), agent="it")
        ask(client, question("?"), agent="it", thread="t2", run="r2")

    assert "41 crowns" in results[0]
    assert "41 crowns" not in results[1]  # it is another thread


def test_an_agent_gets_the_bytes_of_a_file_that_was_sent_before() -> None:
    heard = Heard()
    chat = Chat(agents={"it": heard.pydantic()})
    with chat.serve() as client:
        url = send(client, PNG, "a.png").json()["value"]
        ask(client, question("What is it?", at(url, "a.png", "image")), agent="it")

    assert url not in heard.text
    assert "\\x89PNG" in heard.text or PICTURE[:40] in heard.text


def test_an_agent_gets_also_what_is_not_taken_in_but_nothing_that_a_scanner_refuses() -> None:
    def scan(data: bytes, name: str) -> str | None:
        return "It has a virus." if data == PNG else None

    heard = Heard()
    with agui(heard) as agent:
        chat = Chat(agents={"it": agent}, scan=scan)
        with chat.serve() as client:
            files = [attach(EXE, "a.exe"), attach(PNG, "a.png", "image")]
            events = ask(client, question("?", *files), agent="it")

    assert [it["state"] for it in progress(events)[-1]] == ["refused", "refused"]
    assert attach(EXE)["source"]["value"] in heard.text
    assert PICTURE not in heard.text
    assert "It has a virus." in heard.text


def test_an_agent_that_reads_files_itself_is_asked_once() -> None:
    model = ScriptedAdapter(say("Well."))
    knowledge = Knowledge("memory")
    chat = Chat(agents={"it": DirectAgent(model, files=knowledge.files())})
    with chat.serve() as client:
        ask(client, question("quince?", attach(CSV, "prices.csv")), agent="it")

    assert "41 crowns" in str(model.requests[0].messages)
    assert chat.stored() == []


def test_a_plain_agent_gets_files_as_they_came() -> None:
    model = ScriptedAdapter(say("Well."))
    chat = Chat(agents={"it": DirectAgent(model)})
    with chat.serve() as client:
        ask(client, question("quince?", attach(CSV, "prices.csv")), agent="it")

    assert BASE64 in str(model.requests[0].messages)
    assert chat.stored() != []


def test_files_of_a_page_of_v1_are_stored_for_an_agent() -> None:
    heard = Heard()
    chat = Chat(agents={"it": heard.sdk()})
    image = {"role": "user", "format": "png", "bytes": PICTURE}
    message = {"id": "i1", "createdAt": WHEN, "imageMessage": image}
    with chat.serve() as client:
        body = v1_chat(
            message, v1_user("What is it?"), query=PLAIN, agentSession={"agentName": "it"}
        )
        client.post("/graphql", json=body, headers={"x-user": "ann"}).raise_for_status()

    assert "What is it?" in heard.text
    assert PICTURE in heard.text
    assert len([key for key in chat.stored() if key.startswith("uploads/")]) == 1
