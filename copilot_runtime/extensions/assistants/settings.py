"""The settings section `assistants`."""

from typing import Literal

from pydantic import Field

from copilot_runtime.config.section import Section


class AssistantSettings(Section):
    """Agents that are written as files."""

    folder: str = Field(
        default="",
        description="Folder with files NAME.agent.md: each is an agent, read again when it "
        "changes. Empty: none.",
    )
    window: Literal["newest", "copilot-ld-2025-11", "copilot-ld-2026-01"] = Field(
        default="newest",
        description="Which older messages an assistant with a budget reads: the newest that fit, "
        "or by the rules that Copilot-LD had then.",
    )
