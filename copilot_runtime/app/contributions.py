"""Build all extensions and merge their contributions to a runtime."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from copilot_runtime.api.agent import Agents, Middleware, StageFunction
from copilot_runtime.api.argument_checks import describe
from copilot_runtime.app.extension import Contribution, Core, Extension
from copilot_runtime.app.loading import name_failures
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config.settings import CoreSettings
from copilot_runtime.runtime.observer import RunObserver
from copilot_runtime.transports.transport import RequestPolicy, Services, TransportLike

MakeEndpoint = Callable[[Services], Any]
ResolveAgents = Callable[[Agents], Agents]


@dataclass(slots=True)
class Contributions:
    """The merged contributions of all extensions, in the order in which they were built."""

    resolvers: list[ResolveAgents] = field(default_factory=list[ResolveAgents])
    stages: list[StageFunction] = field(default_factory=list[StageFunction])
    guardrails: list[StageFunction] = field(default_factory=list[StageFunction])
    middleware: list[Middleware] = field(default_factory=list[Middleware])
    observers: list[RunObserver] = field(default_factory=list[RunObserver])
    transports: list[TransportLike] = field(default_factory=list[TransportLike])
    endpoints: list[MakeEndpoint] = field(default_factory=list[MakeEndpoint])
    info: dict[str, Any] = field(default_factory=dict[str, Any])
    schema: list[str] = field(default_factory=list[str])

    def resolve_agents(self, agents: Agents) -> Agents:
        """Return the agents, including those that depend on a request's caller."""
        for resolve in self.resolvers:
            agents = resolve(agents)
        return agents

    def list_transports(
        self, chosen: Sequence[TransportLike] | None, settings: CoreSettings
    ) -> Sequence[TransportLike]:
        """Return the transports of extensions, followed by the given or configured ones."""
        names = settings.transports if chosen is None else chosen
        return [*dict.fromkeys([*self.transports, *names])]


def build_contributions(extensions: Sequence[Extension], core: Core) -> Contributions:
    """Build all extensions. Each one can use the parts, agents and actions of those before it."""
    found = Contributions()
    for extension in extensions:
        added = _build(extension, core)
        for kind, part in added.parts.items():
            core.parts.add(kind, part)
        core.sources.extend(added.sources)
        core.policies.extend(added.policies)
        if added.page:
            core.pages[extension.name] = added.page
        if added.resolve_agents is not None:
            found.resolvers.append(added.resolve_agents)
        if added.schema:
            found.schema.append(added.schema)
        found.info |= added.info
        found.stages += added.stages
        found.guardrails += added.guardrails
        found.middleware += added.middleware
        found.observers += added.observers
        found.transports += added.transports
        found.endpoints += added.endpoints
    return found


def _build(extension: Extension, core: Core) -> Contribution:
    """Return the contribution of an extension.

    Raises `ConfigurationFailed` for values of a wrong type, which would fail much later.
    """
    with name_failures(extension.name):
        added: Any = extension.build(core)
    if not isinstance(added, Contribution):
        raise ConfigurationFailed(
            f"build() of the extension {extension.name!r} returned {describe(added)}, and not a "
            "Contribution.",
            hint="Write return Contribution().",
        )
    kinds: Mapping[type[Any], Sequence[Any]] = {
        RunObserver: added.observers,
        RequestPolicy: added.policies,
        Middleware: added.middleware,
    }
    for kind, items in kinds.items():
        for item in items:
            if not isinstance(item, kind):
                raise ConfigurationFailed(
                    f"The extension {extension.name!r} contributes {describe(item)}, and not a "
                    f"{kind.__name__} object."
                )
    return added
