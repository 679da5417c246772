"""The interface of an extension: the core's parts that it may use, and its contribution.

It is not in `api/`, because a contribution refers to transports and conversations.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from copilot_runtime.agents.registry import AgentRegistry
from copilot_runtime.api.action import ActionSource
from copilot_runtime.api.adapter import Adapter
from copilot_runtime.api.agent import Agents, Middleware, StageFunction
from copilot_runtime.api.registry import Parts
from copilot_runtime.base.concurrency import convert_exits
from copilot_runtime.config.section import Section
from copilot_runtime.config.settings import CoreSettings
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.runtime.observer import RunObserver
from copilot_runtime.runtime.thread_changes import ThreadChanges
from copilot_runtime.security.loopback import LoopbackGuard
from copilot_runtime.telemetry.telemetry import NO_TELEMETRY, Telemetry
from copilot_runtime.threads.store import DeadRun, ThreadKey, ThreadStore
from copilot_runtime.transports.auth import Authenticator
from copilot_runtime.transports.transport import RequestPolicy, Services, TransportLike

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
    """The constructor arguments that extensions declare; omitted arguments are absent."""
    extensions: Sequence["Extension"]
    """All extensions of the runtime, in the order in which they are built."""
    has_hook: bool
    """`True` if the program has an `authenticate` hook."""
    has_users: bool
    """`True` if requests are authenticated, by a hook or by settings."""
    operators: Collection[str] = ()
    """Identifiers of users with the operator permission, whatever their roles."""
    streams_per_user: int = 0
    """Maximum number of open thread-change streams per user; 0 removes the limit."""
    http_client: "httpx.AsyncClient | None"
    parts: Parts = field(default_factory=Parts)
    policies: list[RequestPolicy] = field(default_factory=list[RequestPolicy])
    pages: dict[str, str] = field(default_factory=dict[str, str])
    """The URL path of the page of each extension that has one."""

    @property
    def telemetry(self) -> Telemetry:
        """The telemetry of this runtime, for spans and metrics."""
        return self.parts.find(Telemetry) or NO_TELEMETRY

    @property
    def conversations(self) -> Conversations:
        """The conversations of this runtime; available once all extensions are built."""
        return self.parts.get(Conversations)

    async def load_secret(self) -> str:
        """Return the secret shared by all servers of this runtime: the setting, or the store's."""
        return self.settings.secret or await convert_exits(self.threads.secret())

    async def load_shared_secret(self) -> str:
        """Return that secret, or "" if servers without a common folder cannot share it."""
        is_shared = self.settings.secret or self.threads.shared_url
        return await self.load_secret() if is_shared else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """The values that an extension adds to a runtime; each is empty by default."""

    parts: Mapping[type[Any], Any] = field(default_factory=dict[type[Any], Any])
    """Objects for other extensions, transports and the program, by the type under which they are
    looked up."""
    sources: Sequence[ActionSource] = ()
    resolve_agents: Callable[[Agents], Agents] | None = None
    """Returns agents that are only known once a request arrives."""
    stages: Sequence[StageFunction] = ()
    guardrails: Sequence[StageFunction] = ()
    """Stages that wrap all other stages."""
    middleware: Sequence[Middleware] = ()
    observers: Sequence[RunObserver] = ()
    policies: Sequence[RequestPolicy] = ()
    transports: Sequence[TransportLike] = ()
    """Protocols of chats, tried before those of the setting `transports`."""
    endpoints: Sequence[Callable[[Services], Any]] = ()
    """Transports that carry no chats, such as REST routes; factories that take `Services`."""
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields of `/info`, which AG-UI clients read first."""
    page: str = ""
    """URL path of the extension's page in the console."""
    schema: str = ""
    """Module with `ROOTS`, the extension's fields in the GraphQL schema; imported on first use."""


class OffPage(Route):
    """A page about what is not there, for browsers alone.

    It gives way to any other route, also to one that has its path with or without a last slash. An
    application that mounts the runtime does not get it.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        if match is not Match.FULL or "text/html" not in Headers(scope=scope).get("accept", ""):
            return Match.NONE, {}
        path = scope["path"]
        twin = {**scope, "path": path.rstrip("/") if path.endswith("/") else f"{path}/"}
        others = [one for one in scope["app"].routes if not isinstance(one, OffPage)]
        if any(one.matches(each)[0] is not Match.NONE for one in others for each in (scope, twin)):
            return Match.NONE, {}
        return match, child


class PrivateState(NamedTuple):
    """State that each process has for itself: its name, the effect, and the setting to change."""

    name: str
    text: str
    hint: str


class Extension:
    """A feature of a runtime. Subclass it, and override the methods you need.

    A runtime creates one object of each class, calls `build` in order and `connect` once its
    conversations exist, and later `open` and `aclose`.
    """

    name: ClassVar[str] = ""
    requires: ClassVar[Sequence[str]] = ()
    """The extensions that this one uses. An extension that is not built-in is built after them."""
    options: ClassVar[Sequence[str]] = ()
    """Names of constructor arguments of `CopilotRuntime` that are passed to it."""
    settings: ClassVar[type[Section] | None] = None
    """The section of a plugin in `copilot.yml`, under its name: `core.settings.section(...)`."""
    commands: ClassVar[Mapping[str, str]] = {}
    """Commands of a plugin for `copilot-runtime`: name → import string of a function or a Typer."""
    shares_ports: bool = False
    """`True` if other worker processes listen at the same addresses."""
    opens: ClassVar[Literal["first", "parts", "last"]] = "parts"
    """When it opens: before the threads, before the agents, or after the transports."""

    def build(self, core: Core) -> Contribution:  # noqa: ARG002  # may be overridden
        """Return the contribution of this extension. Must not open files or connections."""
        return Contribution()

    def connect(self, core: Core, services: Services, authenticator: Authenticator) -> None:
        """Use the parts that exist once the runtime is composed."""

    def place(self, path: str) -> None:
        """Receive the runtime's URL path before it is served."""

    async def open(self) -> None:
        """Open files and connections, when the application starts."""

    async def aclose(self) -> None:
        """Close the resources of `open`. Errors are logged and do not stop the shutdown."""

    def routes(self, prefix: str) -> Sequence[BaseRoute]:  # noqa: ARG002  # may be overridden
        """Return routes outside of the runtime's URL, below a prefix."""
        return ()

    def pages(self, path: str) -> Sequence[BaseRoute]:  # noqa: ARG002  # may be overridden
        """Return the web pages of a runtime at `path`, if the setting `console` is enabled."""
        return ()

    def find_failing_checks(self) -> Sequence[str]:
        """Return the names of parts that fail, for `/health/ready`."""
        return ()

    def describe_health(self) -> Mapping[str, Any]:
        """Return further fields of `/health/ready`."""
        return {}

    async def forget_thread(self, thread: ThreadKey) -> None:
        """Delete the extension's data of a deleted thread."""

    async def count_bytes(self, owner: str, *, is_prefix: bool = False) -> Mapping[str, int]:  # noqa: ARG002
        """Return the bytes that an owner stores, by their noun: `{"files": 1024}`.

        With `is_prefix`, those of all owners whose key begins with `owner`: of a tenant.
        """
        return {}

    async def expire(self, before: float) -> None:
        """Delete data that has not been used since a time, in seconds since the epoch."""

    # Commands call the following ones. They have settings, and no runtime that is open.

    def describe_settings(self, settings: CoreSettings) -> str:  # noqa: ARG002  # may be overridden
        """Return a sentence below the table of `copilot-runtime settings`, or an empty string."""
        return ""

    def name_stores(self, settings: CoreSettings, threads: str) -> Mapping[str, Any]:  # noqa: ARG002
        """Return changes of settings that name the stores which a program constructed.

        `threads` is the address of its thread store.
        """
        return {}

    def list_private_state(self, settings: CoreSettings) -> Sequence[PrivateState]:  # noqa: ARG002
        """Return the state that the processes of one service should share, but do not."""
        return ()

    def list_worker_variables(self, settings: CoreSettings) -> Mapping[str, str]:  # noqa: ARG002
        """Return environment variables for processes that work beside, or after, each other.

        They name files instead of stores in memory.
        """
        return {}

    def reserve_ports(self, settings: CoreSettings) -> AbstractContextManager[object]:  # noqa: ARG002
        """Reserve ports of its own for the workers. Raises `ConfigurationFailed` if one is used."""
        return nullcontext()

    def record_command(self, settings: CoreSettings, action: str, subject: str) -> None:
        """Record a command that changed or exported data, such as `threads.export`."""

    def record_dead_run(self, settings: CoreSettings, run: DeadRun) -> None:
        """Record the run of a dead process, which a command has ended by opening its store."""

    async def expire_files(
        self,
        settings: CoreSettings,  # noqa: ARG002
        threads: ThreadStore,  # noqa: ARG002
        before: datetime,  # noqa: ARG002
    ) -> int:
        """Delete the files of deleted threads, unless used since a time. Return their number."""
        return 0
