"""Endpoints that are Python functions."""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ModelWrapValidatorHandler, StringConstraints, model_validator

from copilot_runtime.actions.functions import action
from copilot_runtime.api.action import Action, ActionContext
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.extensions.tools.catalog.endpoints import (
    Endpoint,
    EndpointOptions,
    Operation,
    Surroundings,
)

if TYPE_CHECKING:
    from copilot_runtime.extensions.tools.catalog.definition import ToolDefinition

_TARGET = r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$"


class FunctionOptions(EndpointOptions):
    """`package.module:name`, written alone or as `target`."""

    target: Annotated[str, StringConstraints(pattern=_TARGET)]

    @model_validator(mode="wrap")
    @classmethod
    def _read_text(cls, value: Any, handler: ModelWrapValidatorHandler["FunctionOptions"]) -> Any:
        return handler({"target": value} if isinstance(value, str) else value)


class FunctionEndpoint(Endpoint[FunctionOptions]):
    """A function, imported when the file is loaded. Its signature defines the parameters."""

    Options = FunctionOptions

    def __init__(
        self, tool: "ToolDefinition", options: FunctionOptions, surroundings: Surroundings
    ) -> None:
        super().__init__(tool, options, surroundings)
        found = _import(options.target, surroundings.folder)
        self._action: Action = found if isinstance(found, Action) else action(name=tool.name)(found)
        if self._action.run is None:
            raise ConfigurationFailed(f"{options.target!r} is an action that does not run here.")

    async def load(self, run: RunInput) -> Sequence[Operation]:
        del run
        return self.list_operations()

    def list_operations(self) -> Sequence[Operation]:
        return [
            Operation(
                call=self._call,
                description=self._action.description,
                parameters=self._action.parameters,
                is_idempotent=self._action.is_idempotent,
                checks_arguments=True,
            )
        ]

    async def check(self, run: RunInput) -> str:
        del run
        return "imported"

    async def _call(self, values: Mapping[str, Any], context: ActionContext) -> Any:
        assert self._action.run is not None  # checked in the constructor
        return await self._action.run(values, context)


def _import(target: str, folder: Path) -> Any:
    """Return the object at `module:name`, also from a module beside the file of tools."""
    module, _, name = target.partition(":")
    try:
        loaded = _import_module(module, folder)
    except CopilotError:
        raise
    except ModuleNotFoundError as error:
        hint = f"Looked in the installed packages, in {Path.cwd()} and in {folder}."
        raise ConfigurationFailed(f"No module named {error.name!r}.", hint=hint) from error
    except (Exception, SystemExit) as error:  # the operator's code may raise anything
        raise ConfigurationFailed(
            f"Importing {module!r} failed: {type(error).__name__}: {error}"
        ) from error
    try:
        return attrgetter(name)(loaded)
    except AttributeError:
        raise ConfigurationFailed(f"The module {module!r} has no {name!r}.") from None


def _import_module(module: str, folder: Path) -> Any:
    """Import a module, also from the program's folder or the folder of the file."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module != missing and not module.startswith(f"{missing}."):
            raise  # another import within the module failed
    for place in (str(Path.cwd()), str(folder.resolve())):
        if place not in sys.path:
            sys.path.append(place)
    return import_module(module)
