"""Backups, migrations and the doctor, which know the stores of all extensions; mostly commands."""

import logging

from copilot_runtime.app.extension import Contribution, Core, Extension
from copilot_runtime.extensions.operations.doctor.risks import list_risks
from copilot_runtime.extensions.settings import narrow_settings

logger = logging.getLogger(__name__)


class OperationsExtension(Extension):
    """Warns of risky settings when a server starts. Its commands read the settings."""

    name = "operations"
    requires = ("tracing", "access", "cluster", "knowledge", "events", "planner", "grpc", "mcp")

    def __init__(self) -> None:
        self._core: Core | None = None

    def build(self, core: Core) -> Contribution:
        self._core = core
        return Contribution()

    async def open(self) -> None:
        if self._core is not None:
            settings = narrow_settings(self._core.settings)
            for risk in list_risks(settings, has_users=self._core.has_users):
                logger.warning("%s %s", risk.text, risk.hint)
