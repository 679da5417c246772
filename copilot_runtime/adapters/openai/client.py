"""Requests through an `openai.AsyncOpenAI` of the application: it sends them, we read the bytes.

Building the SDK's objects costs twenty times what reading the chunks here does.
"""

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from copilot_runtime.adapters.errors import Service
from copilot_runtime.adapters.sdk_client import SDKResponse, open_sdk_response

if TYPE_CHECKING:
    from openai import AsyncOpenAI


def send_with_client(
    client: "AsyncOpenAI", api: str, body: dict[str, Any], service: Service
) -> AbstractAsyncContextManager[SDKResponse, bool | None]:
    """Return what sends the request when it is entered; leaving closes the response.

    Entering raises `CopilotError` for what the SDK raises.
    """
    import openai

    endpoint: Any = client.chat.completions if api == "chat" else client.responses
    return open_sdk_response(endpoint.with_streaming_response.create(**body), openai, service)
