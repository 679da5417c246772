"""The settings section `assistants`."""

from typing import Literal

from pydantic import Field

from copilot_runtime.config.section import Section


class AssistantSettings(Section):
    """Agents that are defined in files."""

    folder: str = Field(
        default="",
        description="Folder of files NAME.agent.md, each an agent, reloaded on change.",
    )
    window: Literal["newest", "copilot-ld-2025-11", "copilot-ld-2026-01"] = Field(
        default="newest",
        description="Older messages for an assistant with a budget: the newest that fit, or by "
        "the rules of Copilot-LD at that time.",
    )
