"""Background runs that post their answer to a URL of the client."""

import logging

from copilot_runtime.app.extension import Contribution, Core, Extension
from copilot_runtime.extensions.settings import narrow_settings
from copilot_runtime.threads.outbox import Outbox

logger = logging.getLogger("copilot_runtime.webhooks")


class WebhooksExtension(Extension):
    """Delivers the ends of background runs, if the settings have a secret to sign them."""

    name = "webhooks"
    opens = "last"  # and is closed before the runs, which then end while nothing is delivered

    def build(self, core: Core) -> Contribution:
        self._core = core
        settings = narrow_settings(core.settings).webhooks
        self._webhooks = None
        if not settings.secret:
            if settings.hosts:
                logger.warning(
                    "The setting webhooks.hosts allows nothing without webhooks.secret: there are "
                    "no background runs, and background/{agent} answers 404."
                )
            return Contribution()
        from copilot_runtime.extensions.webhooks.delivery import Webhooks  # imports aiohttp
        from copilot_runtime.extensions.webhooks.http.endpoint import BackgroundEndpoint

        self._webhooks = Webhooks(core.threads.outbox or Outbox(), settings)
        return Contribution(parts={Webhooks: self._webhooks}, endpoints=[BackgroundEndpoint])

    async def open(self) -> None:
        if self._webhooks is not None:
            self._webhooks.open(self._core.conversations)

    async def aclose(self) -> None:
        if self._webhooks is not None:
            await self._webhooks.aclose()
