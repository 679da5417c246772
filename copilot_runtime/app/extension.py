"""The interface of an extension: what it may use of the core, and what it adds to a runtime.

It stands here, and not in `api/`, because a contribution names transports and conversations.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from starlette.routing import BaseRoute

from copilot_runtime.agents.registry import AgentRegistry
from copilot_runtime.api.action import ActionSource
from copilot_runtime.api.adapter import Adapter
from copilot_runtime.api.agent import Agents, Middleware
from copilot_runtime.api.parts import Parts
from copilot_runtime.api.stage import StageFunction
from copilot_runtime.config.section import Section
from copilot_runtime.config.settings import CoreSettings
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.runtime.observer import RunObserver
from copilot_runtime.runtime.thread_changes import ThreadChanges
from copilot_runtime.security.loopback import LoopbackGuard
from copilot_runtime.telemetry.telemetry import NO_TELEMETRY, Telemetry
from copilot_runtime.threads.store import ThreadKey, ThreadStore
from copilot_runtime.transports.auth import Authenticator
from copilot_runtime.transports.policy import RequestPolicy
from copilot_runtime.transports.transport import Services, TransportLike

if TYPE_CHECKING:
    import httpx


@dataclass(slots=True, kw_only=True)
class Core:
    """The parts of the core that an extension may use, and those of the extensions before it."""

    settings: CoreSettings
    adapter: Adapter
    threads: ThreadStore
    changes: ThreadChanges
    guard: LoopbackGuard
    agents: AgentRegistry
    """The agents of the program. Extensions add theirs."""
    sources: list[ActionSource]
    """The actions of the program and of the extensions before this one."""
    options: Mapping[str, Any]
    """The constructor arguments that extensions declare; one that was not given is absent."""
    has_hook: bool
    """Whether the program authenticates requests itself."""
    has_users: bool
    """Whether requests are authenticated at all."""
    operators: Collection[str] = ()
    """Ids of users who have the permission of operators, whatever their roles are."""
    streams_per_user: int = 0
    """The most streams of thread changes that a user may have open; 0 for any number."""
    http_client: "httpx.AsyncClient | None"
    load_secret: Callable[[], Awaitable[str]]
    """Returns the secret that all servers of this store share."""
    load_shared_secret: Callable[[], Awaitable[str]]
    """Returns that secret, or an empty text if servers without a common folder cannot have it."""
    parts: Parts = field(default_factory=Parts)
    policies: list[RequestPolicy] = field(default_factory=list[RequestPolicy])
    pages: dict[str, str] = field(default_factory=dict[str, str])
    """The URL path of the page of each extension that has one."""

    @property
    def telemetry(self) -> Telemetry:
        """Where spans and metrics of this runtime go."""
        return self.parts.find(Telemetry) or NO_TELEMETRY

    @property
    def conversations(self) -> Conversations:
        """The conversations of this runtime; they exist once all extensions are built."""
        return self.parts.get(Conversations)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """The values that an extension adds to a runtime; each is empty by default."""

    parts: Mapping[type[Any], Any] = field(default_factory=dict[type[Any], Any])
    """Objects for other extensions, transports and the program, by the type they are found by."""
    sources: Sequence[ActionSource] = ()
    resolve_agents: Callable[[Agents], Agents] | None = None
    """Adds agents that are only known when a request comes."""
    stages: Sequence[StageFunction] = ()
    guardrails: Sequence[StageFunction] = ()
    """Stages around all others."""
    middleware: Sequence[Middleware] = ()
    observers: Sequence[RunObserver] = ()
    policies: Sequence[RequestPolicy] = ()
    transports: Sequence[TransportLike] = ()
    """Protocols of chats, asked before those of the setting `transports`."""
    endpoints: Sequence[Callable[[Services], Any]] = ()
    """Transports that carry no chat, such as REST routes: made of `Services`."""
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields of `/info`, which AG-UI clients read first."""
    page: str = ""
    """URL path of its page in the console."""
    schema: str = ""
    """Module with `ROOTS`, the fields that it adds to the GraphQL schema; imported when needed."""


class Extension:
    """A feature of a runtime. Subclass it, and override the methods you need.

    A runtime makes one object of each class, calls `build` in the order of the table and `connect`
    once its conversations exist, and later `open` and `aclose`.
    """

    name: ClassVar[str]
    requires: ClassVar[Sequence[str]] = ()
    """The extensions that this one imports."""
    options: ClassVar[Sequence[str]] = ()
    """Names of constructor arguments of `CopilotRuntime` that are passed to it."""
    settings: ClassVar[type[Section] | None] = None
    """The section of a plugin in `copilot.yml`, under its name: `core.settings.section(...)`."""
    shares_ports: bool = False
    """Whether other worker processes listen at the same addresses."""
    opens: ClassVar[Literal["first", "parts", "last"]] = "parts"
    """When it opens: before the threads, before the agents, or after the transports."""

    def build(self, core: Core) -> Contribution:  # noqa: ARG002  # may be overridden
        """Return what this extension adds. Opens no file and no connection."""
        return Contribution()

    def connect(self, core: Core, services: Services, authenticator: Authenticator) -> None:
        """Take what exists once the runtime is put together."""

    def place(self, path: str) -> None:
        """Take the URL path of the runtime, before it is served."""

    async def open(self) -> None:
        """Open files and connections, when the application starts."""

    async def aclose(self) -> None:
        """Close what `open` opened. Errors are logged, and end nothing else."""

    def routes(self, prefix: str) -> Sequence[BaseRoute]:  # noqa: ARG002  # may be overridden
        """Return routes beside the URL of the runtime, below a prefix."""
        return ()

    def pages(self, path: str) -> Sequence[BaseRoute]:  # noqa: ARG002  # may be overridden
        """Return the pages for people, of a runtime at `path`, if the setting `console` is on."""
        return ()

    def find_failing_checks(self) -> Sequence[str]:
        """Return the names of parts that fail, for `/health/ready`."""
        return ()

    def describe_health(self) -> Mapping[str, Any]:
        """Return further fields of `/health/ready`."""
        return {}

    async def forget_thread(self, thread: ThreadKey) -> None:
        """Delete what belongs to a thread that is deleted."""

    async def expire(self, before: float) -> None:
        """Delete what was not used since a time, in seconds since the epoch."""
