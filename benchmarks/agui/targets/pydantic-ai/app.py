"""The peer that Python users pick today: pydantic-ai's AG-UI adapter on Starlette. MOCK_URL."""

import os

import httpx2
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

# without limits of its own, so that a thousand streams are not its client's queue
client = httpx2.AsyncClient(
    timeout=300,
    limits=httpx2.Limits(max_connections=None, max_keepalive_connections=512),
    trust_env=False,
)
provider = OpenAIProvider(
    base_url=f"{os.environ['MOCK_URL']}/v1", api_key="sk-mock", http_client=client
)
agent = Agent(OpenAIChatModel("gpt-4o", provider=provider), instructions="You are a test.")


async def run(request: Request) -> Response:
    return await AGUIAdapter.dispatch_request(request, agent=agent)


app = Starlette(routes=[Route("/run", run, methods=["POST"])])
