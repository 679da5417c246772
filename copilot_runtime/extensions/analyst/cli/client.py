"""The analyst of a running server, by its REST routes."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from copilot_runtime.agui.refusal import decode_refusal
from copilot_runtime.base.errors import NetworkError
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import JsonObject, as_object, as_objects
from copilot_runtime.cli.agent_client import find_sign_in_hint, parse_header, parse_url
from copilot_runtime.http.client import Exchange, Upstream

_OK = (200, 204)


class AnalystClient:
    """Reads data sets, charts and downloads, and reads and changes memory.

    All methods raise `NetworkError` for a server that cannot be reached, that has no analyst, or
    that refuses, with its reason.

    Args:
        url: The URL that `<CopilotKit runtimeUrl>` gets.
        headers: Lines such as `Name: value`, sent with each request.
    """

    def __init__(self, url: str, headers: Sequence[str] = ()) -> None:
        self.url = parse_url(url).rstrip("/")
        self.headers = headers
        self._headers = dict(map(parse_header, headers))
        self._upstream = Upstream("Runtime", idle_timeout=120, max_retries=0)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._upstream.aclose()

    async def list_datasets(self) -> JsonObject:
        """Return `datasets`, and `progress` of those that are being loaded."""
        return await self._request_json("GET", "analyst/datasets")

    async def list_memories(self, table: str = "") -> Sequence[JsonObject]:
        """Return what is remembered about a table, or about all."""
        query = f"?{urlencode({'table': table})}" if table else ""
        return as_objects(
            (await self._request_json("GET", f"analyst/memory{query}")).get("memories")
        )

    async def change_memory(self, id: str, values: Mapping[str, Any]) -> None:
        """Change `text` or `is_pinned` of what is remembered."""
        await self._request("PATCH", f"analyst/memory/{_quote(id)}", dumps(dict(values)))

    async def forget(self, id: str) -> None:
        """Delete what is remembered."""
        await self._request("DELETE", f"analyst/memory/{_quote(id)}")

    async def read(self, path: str) -> bytes:
        """Return a file of the server, such as the PNG of a chart."""
        return await self._request("GET", path)

    async def _request_json(self, method: str, path: str) -> JsonObject:
        text = await self._request(method, path)
        try:
            return as_object(loads(text))
        except ValueError:
            raise self._explain(200, text) from None

    async def _request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        headers = {**self._headers, "content-type": "application/json"}
        exchange = Exchange(self._upstream, method, f"{self.url}/{path}", body, headers)
        async with exchange as response:
            text = await response.text()
        if response.status not in _OK:
            raise self._explain(response.status, text)
        return text

    def _explain(self, status: int, text: bytes) -> NetworkError:
        """Return the error for an answer that is not what was asked for: its own reason."""
        refusal = decode_refusal(text)
        if refusal is None or refusal.message.startswith("There is nothing at"):
            return NetworkError(
                f"{self.url} has no analyst: it answered {status}.",
                hint="The URL is the one that <CopilotKit runtimeUrl> gets, and the server needs "
                "the setting analyst.name.",
            )
        hint = find_sign_in_hint(status, self._headers)
        return NetworkError(refusal.message, status_code=status, hint=hint)


def _quote(part: str) -> str:
    return quote(part, safe="")
