"""The description of an MCP server."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import ConfigurationFailed

if TYPE_CHECKING:
    import httpx
    import httpx2
    from mcp_types import Tool

Headers = Mapping[str, str] | Callable[[RunInput], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""HTTP headers, or a function of the request (sync or async) that returns them."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True)
class McpServer:
    """An MCP server: at a `url`, or a `command` to start that speaks over stdin and stdout.

    >>> McpServer("https://mcp.example/mcp", headers={"authorization": "Bearer …"}) >>>
    McpServer(command=["uvx", "mcp-server-time"], prefix="time_")

    A command gets the variables of `env` and a few harmless ones such as PATH. `tools`, `resources`
    and `prompts` are glob patterns that select what models may use, such as `get_*`: of names, and
    of URIs for resources; `tools` may also be a predicate of MCP's `Tool`, for example to check its
    annotations. `prefix` is prepended to tool names. Times are in seconds: `timeout` is the maximum
    silence during a call (each progress notification restarts it), and `max_time` the maximum
    duration of a call.
    """

    url: str = ""
    _: KW_ONLY
    command: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    headers: Headers = field(default_factory=dict[str, str], repr=False)
    name: str = ""
    """The name in messages and in resource actions. Default: the host, or the program."""
    prefix: str = ""
    tools: "Sequence[str] | Callable[[Tool], bool]" = ("*",)
    resources: Sequence[str] = ()
    prompts: Sequence[str] = ()
    transport: Literal["http", "sse"] | None = None
    """Default: `sse` (deprecated) if the URL's path ends in it, otherwise streamable HTTP."""
    public_only: bool = False
    """True if the server's address must be public; proxies of the environment are ignored then."""
    connect_timeout: float | None = None
    """Default: 10 for a URL, and 60 for a command, which may have to be downloaded."""
    timeout: float = 60.0
    max_time: float = 600.0
    http_client: "httpx.AsyncClient | httpx2.AsyncClient | None" = field(default=None, repr=False)
    """An HTTP client of the application, which is not closed here. `headers` override its own, and
    an `authorization` header overrides its authentication."""

    def __post_init__(self) -> None:
        if bool(self.url) == bool(self.command):
            raise ConfigurationFailed("An McpServer has either a URL or a command.")
        if isinstance(self.command, str):
            raise ConfigurationFailed(
                f"The command {self.command!r} is one text.",
                hint="It is a list: the program, then each of its arguments.",
            )
        if self.url and not _is_address(self.url):
            raise ConfigurationFailed(
                f"The address {_without_secrets(self.url)!r} of an MCP server is not an address.",
                hint="It looks like https://mcp.example/mcp.",
            )
        if self.http_client is not None and (self.command or self.public_only):
            raise ConfigurationFailed(
                f"The McpServer {self.label!r} cannot have an http_client: that is for a URL, and "
                "not with public_only, because it decides itself what it connects to."
            )
        times = (self.startup_timeout, self.timeout, self.max_time)
        if not all(time > 0 for time in times):
            raise ConfigurationFailed(f"The times of {self.label!r} must be more than 0 s.")

    @property
    def label(self) -> str:
        """The name in messages; never the URL's path or query, which may contain a key."""
        if self.name or self.url:
            return self.name or urlsplit(self.url).hostname or ""
        # `npx -y @acme/server-maps` is known as server-maps
        program, *args = self.command
        plain = (it for it in args if not it.startswith("-") and "://" not in it)
        return PurePath(next(plain, program)).name

    @property
    def startup_timeout(self) -> float:
        """Timeout for starting or connecting, in seconds."""
        if self.connect_timeout is not None:
            return self.connect_timeout
        return 60.0 if self.command else 10.0

    @property
    def slug(self) -> str:
        """The label as a part of action names."""
        return _NOT_IN_NAMES.sub("_", self.label)[:32]

    @property
    def uses_sse(self) -> bool:
        if self.transport is not None:
            return self.transport == "sse"
        return urlsplit(self.url).path.rstrip("/").endswith("/sse")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _without_secrets(url: str) -> str:
    return url.partition("?")[0].rpartition("@")[2]
