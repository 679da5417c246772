"""Check constructor arguments of `CopilotRuntime`."""

from dataclasses import replace

from copilot_runtime.api.argument_checks import (
    check_actions,
    check_function,
    check_list,
    check_mapping,
    check_stages,
    check_store,
    describe,
)
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config.loader import load_settings_class

_HOOKS = {
    "before_request": ("run",),
    "after_request": ("run", "messages"),
    "error": ("error", "context"),
    "stop": ("run",),
}
"""The parameter names of each hook."""

ELSEWHERE = {
    "model": "adapter=OpenAIAdapter('gpt-4o')",
    **{f"on_{name}": f"hooks=Hooks({name}=...)" for name in _HOOKS},
    **{name: f"settings=Settings({name}=...)" for name in load_settings_class().model_fields},
}
"""For unknown arguments that newcomers try: the code to write instead."""


def check_arguments(
    settings: object,
    actions: object,
    threads: object,
    properties: object,
    stages: object,
    transports: object,
    authenticate: object,
) -> None:
    """Raise `ConfigurationFailed` for an argument with which the first request would fail."""
    check_settings(settings)
    check_actions(actions)
    check_store(threads)
    check_mapping("properties", properties)
    check_stages("stages", stages)
    if transports is not None:
        check_list("transports", transports, "'agui'")
    check_function("authenticate", authenticate, ("connection",))


def check_hooks(hooks: Hooks | None, deployment: str) -> Hooks:
    """Return the hooks, with `environment` set to the deployment's name if it is empty.

    Raises `ConfigurationFailed` for a hook that cannot be called.
    """
    hooks = hooks or Hooks()
    if not isinstance(hooks, Hooks):  # pyright: ignore[reportUnnecessaryIsInstance]  # untyped programs
        raise ConfigurationFailed(
            f"hooks is {describe(hooks)}, and not a Hooks object.",
            hint="Write hooks=Hooks(error=report), of copilot_runtime.api.hooks.",
        )
    for name, parameters in _HOOKS.items():
        check_function(name, getattr(hooks, name), parameters)
    return hooks if hooks.environment else replace(hooks, environment=deployment)


def check_settings(settings: object) -> None:
    """Raise `ConfigurationFailed` for an object that is not a `Settings`."""
    if settings is not None and not isinstance(settings, load_settings_class()):
        raise ConfigurationFailed(
            f"settings is {describe(settings)}, and not a Settings object.",
            hint="Write settings=Settings(port=8080), or load_settings('copilot.yml').",
        )
