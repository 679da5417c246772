"""The description of an MCP server, and the servers that pages may name."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from ipaddress import ip_address
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import urlsplit

from copilot_runtime.api.agent import Stage
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import ConfigurationFailed, LimitExceeded, Misuse
from copilot_runtime.config.checks import mask_credentials
from copilot_runtime.security.addresses import is_public

if TYPE_CHECKING:
    import httpx
    import httpx2
    from mcp_types import Tool


Headers = Mapping[str, str] | Callable[[RunInput], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""HTTP headers, or a function of the request (sync or async) that returns them."""

_USUAL_PORTS = {"http": 80, "https": 443}
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
    """The name in messages and in resource actions. Default: the host with its port, if that is not
    the usual one, or the program."""
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
                f"The address {_redact(self.url)!r} of an MCP server is not an address.",
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
            return self.name or _name_host(self.url)
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
        return _NOT_IN_NAMES.sub("_", self.label)[:48]

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


def _name_host(url: str) -> str:
    """Return the host of a URL, with its port if that is not the default of its scheme."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.port in (None, _USUAL_PORTS.get(parts.scheme)):
        return host
    return f"[{host}]:{parts.port}" if ":" in host else f"{host}:{parts.port}"


AllowRule = Sequence[str | McpServer] | Callable[[str], bool]
"""Allowed origins, URLs and servers, or a predicate of the URL."""

MAX_SERVERS = 10
"""Maximum number of servers in one request."""

_PROPERTIES = ("mcpServers", "mcpEndpoints")
"""Property names; CopilotKit 1.10 reads the first one that is present."""

# parsers disagree about URLs with spaces, \, user@, [ or #: they are refused
_ADDRESS = re.compile(r"https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?(?:/[!-~]*)?")
_KEY = re.compile(r"[!-~]+")


class McpAllowlist(Stage):
    """Finds the servers of a request. As a stage, it refuses requests for other servers.

    A server that the operator configured, or allowed as an `McpServer`, may have any address, and
    so may one that is allowed by a private address itself: `http://10.0.0.7`, or `localhost`. Any
    other server of a page must have a public address when the connection is made, because a host
    name may resolve to any address.
    """

    def __init__(self, allowed: AllowRule = (), servers: Sequence[McpServer] = ()) -> None:
        if isinstance(allowed, str):
            raise ConfigurationFailed(
                f"mcp_allowed is a list, not the text {allowed!r}.", hint="Put it into brackets."
            )
        entries_or_servers = () if callable(allowed) else tuple(allowed)
        entries = [entry for entry in entries_or_servers if isinstance(entry, str)]
        if wrong := [entry for entry in entries if not _ADDRESS.fullmatch(entry)]:
            raise ConfigurationFailed(f"{wrong[0]!r} in mcp_allowed is not an address.")
        templates = [entry for entry in entries_or_servers if isinstance(entry, McpServer)]
        self.servers = tuple(servers)
        self._configured = {server.url: server for server in (*templates, *servers) if server.url}
        self._is_open = bool(entries) or callable(allowed)
        self._has_entries = bool(entries)
        self._is_allowed = allowed if callable(allowed) else _build_predicate(entries)

    @property
    def any(self) -> bool:
        """True if any run could have a server."""
        return bool(self._configured or self.servers or self._is_open)

    def check(self, run: RunInput) -> None:
        """Raise an error if the request names a server that is not allowed."""
        self.resolve(run)

    def resolve(self, run: RunInput) -> Sequence[McpServer]:
        """Return the operator's servers and those of the request, with the request's keys."""
        requested = _parse_page_servers(run)
        if not requested:
            return self.servers
        servers = {server.url or str(number): server for number, server in enumerate(self.servers)}
        for endpoint, key in requested:
            servers[endpoint] = self.find_server(endpoint, key)
        return [*servers.values()]

    def list_page_servers(self, run: RunInput) -> Sequence[tuple[McpServer, str]]:
        """Return the servers of a request, each with the request's key for it.

        Raises an error if one is not allowed.
        """
        keys = dict(_parse_page_servers(run))
        return [(self.find_server(endpoint, key), key) for endpoint, key in keys.items()]

    def find_server(self, endpoint: str, key: str = "") -> McpServer:
        """Return the server at a page's URL. Raises an error if it is not allowed."""
        server = self._configured.get(endpoint)
        if server is None:
            if not _ADDRESS.fullmatch(endpoint) or not self._is_allowed(endpoint):
                raise ConfigurationFailed(
                    f"The MCP server {_redact(endpoint)!r} is not one that this runtime allows.",
                    hint="CopilotRuntime(mcp_allowed=[...]) says which servers a page may name.",
                )
            is_private = self._has_entries and _is_private(endpoint)
            server = McpServer(endpoint, public_only=not is_private)
        # a key of the request replaces the operator's headers, so they are never sent together
        return replace(server, headers={"authorization": f"Bearer {key}"}) if key else server


def _build_predicate(entries: Sequence[str]) -> Callable[[str], bool]:
    return lambda url: any(_matches_entry(entry, url) for entry in entries)


def _parse_page_servers(run: RunInput) -> Sequence[tuple[str, str]]:
    """Return the URLs in a request, each with its key. Raises an error if one is malformed."""
    if not run.properties:
        return ()
    requested: Any = next((it for name in _PROPERTIES if (it := run.properties.get(name))), ())
    if not isinstance(requested, Sequence) or isinstance(requested, str):
        raise Misuse(f"mcpServers is a list, not a {type(requested).__name__}.")
    if len(requested) > MAX_SERVERS:
        raise LimitExceeded(f"A request may name {MAX_SERVERS} MCP servers, not {len(requested)}.")
    return [_parse_entry(entry) for entry in cast("Sequence[Any]", requested)]


def _parse_entry(entry: Any) -> tuple[str, str]:
    fields = cast("Mapping[str, Any]", entry) if isinstance(entry, Mapping) else {}
    endpoint, key = fields.get("endpoint"), fields.get("apiKey") or ""
    if not isinstance(endpoint, str) or not endpoint:
        raise Misuse('An entry of mcpServers needs an endpoint: {"endpoint": "https://…"}.')
    if not isinstance(key, str) or (key and not _KEY.fullmatch(key)):
        raise Misuse(f"The apiKey for {_redact(endpoint)!r} is not one.")
    return endpoint, key


def _matches_entry(entry: str, url: str) -> bool:
    """Return whether an entry is the URL's origin or the URL itself."""
    try:
        same = _origin(entry) == _origin(url)
    except ValueError:  # an invalid port
        return False
    allowed, requested = urlsplit(entry), urlsplit(url)
    if not same:
        return False
    return allowed.path in ("", "/") or (allowed.path, allowed.query) == (
        requested.path,
        requested.query,
    )


def _is_private(url: str) -> bool:
    """Return whether a host is a private IP address, or `localhost`, without resolving names."""
    host = urlsplit(url).hostname or ""
    try:
        ip_address(host)
    except ValueError:
        return host == "localhost"
    return not is_public(host)


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    port = parts.port or _USUAL_PORTS[parts.scheme]
    return parts.scheme, parts.hostname or "", port


def _redact(endpoint: str) -> str:
    """Return a URL of bounded length without parts that may be secret."""
    return re.split("[?#]", mask_credentials(endpoint), maxsplit=1)[0][:200]
