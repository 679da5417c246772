"""A small A2A agent, made with the package `a2a-sdk`: it asks for the city, then answers.

    uvicorn --app-dir examples/a2a agent:app --port 8001

Its card is at http://127.0.0.1:8001/.well-known/agent-card.json. See https://a2a-protocol.org.
"""

import asyncio
import os

from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part
from starlette.applications import Starlette

URL = os.environ.get("A2A_URL", "http://127.0.0.1:8001")


class Weather(AgentExecutor):
    """Knows one kind of weather."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        task = context.current_task or new_task_from_user_message(context.message)
        if context.current_task is None:
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        if context.current_task is None:
            question = updater.new_agent_message([Part(text="In which city?")])
            await updater.requires_input(question)
            return
        await updater.start_work()
        words = f"It is sunny in {context.get_user_input()}.".split(" ")
        for number, word in enumerate(words):
            text = word if number == 0 else f" {word}"
            await updater.add_artifact([Part(text=text)], "answer", append=number > 0)
            await asyncio.sleep(0.05)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


card = AgentCard(
    name="Weather",
    description="Knows the weather of any city.",
    version="1.0.0",
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="weather", name="Weather", description="The weather.", tags=["weather"])],
    supported_interfaces=[
        AgentInterface(url=f"{URL}/a2a", protocol_binding="JSONRPC", protocol_version="1.0")
    ],
)
handler = DefaultRequestHandler(Weather(), InMemoryTaskStore(), card)
app = Starlette(
    routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/a2a")],
)
