"""Anchor: the least a Python server does, one send per read of the upstream. MOCK_URL."""

import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import aiohttp

MOCK_URL = os.environ["MOCK_URL"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class PassThrough:
    """Hands every request on and the answer back, unread."""

    def __init__(self) -> None:
        self._client: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._pass_on(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self._client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._client.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _pass_on(self, scope: Message, receive: Receive, send: Send) -> None:
        assert self._client is not None
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = {"content-type": "application/json"}
        url = MOCK_URL + scope["path"]
        async with self._client.request(scope["method"], url, data=body, headers=headers) as answer:
            content_type = answer.headers["content-type"].encode()
            start = {"status": answer.status, "headers": [(b"content-type", content_type)]}
            await send({"type": "http.response.start", **start})
            async for data in answer.content.iter_any():
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


app = PassThrough()
