"""Check and merge the arguments for the model of the plain chat."""

import logging

from copilot_runtime.adapters.parameters import ParametersLike, merge_parameters, parse_parameters
from copilot_runtime.agents.instructions import Instructions
from copilot_runtime.api.adapter import Adapter
from copilot_runtime.api.run_input import Parameters
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config.settings import CoreSettings

logger = logging.getLogger(__name__)


def check_no_model(
    settings: CoreSettings, instructions: Instructions | None, parameters: ParametersLike | None
) -> None:
    """Raise `ConfigurationFailed` for instructions or parameters without a model."""
    arguments = {"instructions": instructions, "parameters": parameters}
    if names := [name for name, value in arguments.items() if value is not None]:
        raise ConfigurationFailed(
            f"There are {' and '.join(names)}, but no adapter: they are for the plain chat.",
            hint="Give agents their own, as in DirectAgent(adapter, instructions=...).",
        )
    if settings.instructions:
        logger.warning("The setting instructions is for the plain chat, and there is no adapter.")


def merge_default_parameters(
    settings: CoreSettings, parameters: ParametersLike | None
) -> Parameters:
    """Return the given parameters, completed by those of the settings."""
    defaults = Parameters(**settings.parameters.model_dump())
    return merge_parameters(defaults, parse_parameters(parameters))


def build_empty_adapter() -> Adapter:
    """Return the adapter of a runtime that has no model."""
    from copilot_runtime.adapters.empty import EmptyAdapter  # only imported if there is no model

    return EmptyAdapter()
