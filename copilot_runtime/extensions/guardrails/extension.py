"""Guardrails: stages that refuse, around all others."""

from copilot_runtime.api.argument_checks import check_stages
from copilot_runtime.app.extension import Contribution, Core, Extension
from copilot_runtime.extensions.guardrails.guardrails import from_settings
from copilot_runtime.extensions.settings import narrow_settings


class GuardrailsExtension(Extension):
    """Adds the guardrails of the program, and those of the settings around them."""

    name = "guardrails"
    options = ("guardrails",)

    def build(self, core: Core) -> Contribution:
        own = core.options.get("guardrails") or ()
        check_stages("guardrails", own)
        configured = from_settings(
            narrow_settings(core.settings),
            core.http_client,
            honours_client=any(getattr(one, "honours_client", False) for one in own),
        )
        return Contribution(guardrails=[*own, *configured])
