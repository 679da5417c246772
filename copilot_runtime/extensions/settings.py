"""All settings: those of the core, and those of the extensions of this package.

This is the class that programs know as `copilot_runtime.Settings`. The core finds it by its import
string, and imports nothing of it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from copilot_runtime.config import loader
from copilot_runtime.config.problems import SettingOrigins
from copilot_runtime.config.settings import CoreSettings
from copilot_runtime.extensions.access.settings import (
    ApiKeySettings,
    AuditSettings,
    JwtSettings,
    LimitSettings,
    ServiceTokenSettings,
)
from copilot_runtime.extensions.analyst.settings import AnalystSettings
from copilot_runtime.extensions.assistants.settings import AssistantSettings
from copilot_runtime.extensions.events.settings import EventSettings
from copilot_runtime.extensions.generative_ui.settings import (
    A2uiSettings,
    McpAppsSettings,
    OpenGenerativeUiSettings,
)
from copilot_runtime.extensions.grpc.settings import GrpcSettings
from copilot_runtime.extensions.guardrails.settings import GuardrailSettings
from copilot_runtime.extensions.knowledge.settings import KnowledgeSettings
from copilot_runtime.extensions.mcp.settings import McpSettings
from copilot_runtime.extensions.planner.settings import PlannerSettings
from copilot_runtime.extensions.tracing.settings import TelemetrySettings
from copilot_runtime.extensions.webhooks.settings import WebhookSettings


class Settings(CoreSettings):
    """All settings of a runtime. Times are in seconds, sizes in bytes."""

    serve_remote: bool = Field(
        default=False,
        description="Whether Node runtimes may use actions and agents, at path.",
    )
    serve_mcp: bool = Field(
        default=False, description="Whether MCP clients may use actions and agents, at path/mcp."
    )
    serve_a2a: bool = Field(
        default=False,
        description="Whether A2A clients may use agents, at path/a2a/NAME.",
    )
    a2a_url: str = Field(
        default="",
        pattern=r"^(https?://\S+)?$",
        description="URL of path in A2A cards. Empty: the one the client asks at.",
    )
    tools: str = Field(
        default="",
        description="File of tools for models and agents, or folder of such .yml files.",
    )
    cloud_base_url: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="URL of a cloud-compatible guardrails service.",
    )
    api_keys: ApiKeySettings = ApiKeySettings()
    jwt: JwtSettings = JwtSettings()
    service_tokens: ServiceTokenSettings = ServiceTokenSettings()
    limits: LimitSettings = LimitSettings()
    audit: AuditSettings = AuditSettings()
    guardrails: GuardrailSettings = GuardrailSettings()
    mcp: McpSettings = McpSettings()
    a2ui: A2uiSettings = A2uiSettings()
    mcp_apps: McpAppsSettings = McpAppsSettings()
    open_generative_ui: OpenGenerativeUiSettings = OpenGenerativeUiSettings()
    knowledge: KnowledgeSettings = KnowledgeSettings()
    events: EventSettings = EventSettings()
    webhooks: WebhookSettings = WebhookSettings()
    grpc: GrpcSettings = GrpcSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    assistants: AssistantSettings = AssistantSettings()
    planner: PlannerSettings = PlannerSettings()
    analyst: AnalystSettings = AnalystSettings()


def narrow_settings(settings: CoreSettings) -> Settings:
    """Return the same settings, typed with the sections of extensions.

    Raises `TypeError` for settings of the core alone, with which no extension can be built.
    """
    if not isinstance(settings, Settings):
        raise TypeError(f"These are {type(settings).__name__}, and not Settings.")
    return settings


def load_settings(
    path: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
) -> Settings:
    """Read the settings as `config.loader.load_settings` does, typed with all sections."""
    return narrow_settings(loader.load_settings(path, environ, overrides=overrides))


def read_settings(
    path: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
) -> tuple[Settings, SettingOrigins]:
    """Read the settings as `config.loader.read_settings` does, typed with all sections."""
    settings, origins = loader.read_settings(path, environ, overrides=overrides)
    return narrow_settings(settings), origins
