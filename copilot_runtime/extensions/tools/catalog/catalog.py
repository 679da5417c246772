"""The tools of a file or a folder, as a source of actions that reloads changed files."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from copilot_runtime.actions.execute import execute, parse_failure
from copilot_runtime.api.action import Action, ActionContext, ActionSource
from copilot_runtime.api.identity import SelectNames
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.concurrency import capture_result
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject, as_object, as_optional_text
from copilot_runtime.config.file_watcher import FileStates, FileWatcher, read_text
from copilot_runtime.extensions.tools.catalog.definition import (
    ToolDefinition,
    parse_services,
    parse_tools,
)
from copilot_runtime.extensions.tools.catalog.endpoints import References, Surroundings
from copilot_runtime.extensions.tools.catalog.tool import ReadResources, Tool, list_names

LOAD_TIMEOUT = 10.0
"""Timeout for an endpoint to describe its operations, in seconds; afterwards the tool is skipped.
"""

_QUICK = 1.0
"""An endpoint that fails within so many seconds is tried again by the next run."""

_SUFFIXES = (".yml", ".yaml")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call, or its error. `hint` is for the operator only."""

    content: str
    error: str | None = None
    hint: str | None = None

    @classmethod
    def failure(cls, message: str, hint: str | None = None) -> "ToolResult":
        """Return the result of a failed call, whose content is the error."""
        return cls(dumps({"error": message}).decode(), message, hint)


@dataclass(frozen=True, slots=True)
class ToolDescription:
    """A tool's definition, and the actions that models get."""

    name: str
    definition: ToolDefinition | None
    """None for a tool that is misconfigured."""
    actions: Sequence[Action] = ()
    error: str | None = None
    """The reason why there are no actions."""


@dataclass(frozen=True, slots=True)
class Reachability:
    """The result of a check of a tool's endpoint."""

    tool: str
    kind: str
    is_reachable: bool
    detail: str


class ToolCatalog(ActionSource):
    """The tools in a file, or in the `.yml` files of a folder.

    Errors fail the server's start. Later, the previous tools stay in use, and the log names the
    line. `read_resources` reads resources that a tool's result names, `select_names` returns the
    names of the tools that a user may use, and `interval` is the minimum time between two checks
    for changed files, in seconds.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        references: References | None = None,
        read_resources: ReadResources | None = None,
        select_names: SelectNames | None = None,
        interval: float | None = None,
    ) -> None:
        self._select_names = select_names
        self.path = Path(path)
        self._watcher = FileWatcher(
            self.path, self._find_files, self._rebuild, "tools", interval=interval
        )
        self.on_change: Callable[[], None] = lambda: None
        """Called after the tools were reloaded."""
        self._references = references or References()
        self._read_resources = read_resources
        self._tools: Mapping[str, Tool] = {}
        self._fixed: Mapping[str, Sequence[Action]] = {}
        """Actions of tools whose endpoints have a fixed description."""
        self._ready: Sequence[Action] | None = None
        """All actions, if all tools are fixed."""
        self._problems: Mapping[str, ConfigurationFailed] = {}
        self._slow: dict[str, asyncio.Task[Any]] = {}
        self._shared: dict[str, Any] = {}

    def describe_resources(self) -> Mapping[str, JsonObject]:
        """Return the content of the resource of each tool, by name."""
        return {name: one.describe_resource() for name, one in self.definitions.items()}

    @property
    def definitions(self) -> Mapping[str, ToolDefinition]:
        """The tools by name, as defined in the files."""
        return {name: tool.definition for name, tool in self._tools.items()}

    @property
    def names(self) -> Sequence[str]:
        """The names of all tools, including misconfigured ones."""
        return [*self._tools, *self._problems]

    @property
    def problems(self) -> Mapping[str, str]:
        """Errors of misconfigured tools by name, if `load` was not strict."""
        return {name: _describe_problem(problem) for name, problem in self._problems.items()}

    def has_tool(self, name: str) -> bool:
        """Return whether a tool of the catalog could have an action of this name."""
        return name in self._problems or bool(self._list_owners(name))

    def load(self, *, is_strict: bool = True) -> None:
        """Read all files. Raises `ConfigurationFailed` with all errors.

        Without `is_strict`, a misconfigured tool is loaded, and its calls return the error.
        """
        tools, problems = self._build(*self._read(self._watcher.look()))
        if is_strict and problems:
            raise ConfigurationFailed("\n".join(map(_describe_problem, problems.values())))
        self._tools, self._problems = tools, problems

    async def actions(self, run: RunInput) -> Sequence[Action]:
        """Return the actions for models; unreachable endpoints are skipped with a warning."""
        await self._refresh()
        current = self._tools
        chosen, fixed = await self._select(run.user), self._fixed
        if self._ready is not None and len(chosen) == len(current):
            return self._ready
        tools = {name: tool for name, tool in chosen.items() if name not in fixed}
        loaded = await asyncio.gather(*(self._load(tool, run) for tool in tools.values()))
        found = dict(zip(tools, loaded, strict=True))
        every = [action for name in chosen for action in fixed.get(name) or found.get(name) or ()]
        if self._tools is current:  # otherwise a concurrent run has reloaded the files
            self._fixed = {**fixed, **_select_lasting(tools, found)}
            if len(self._fixed) == len(chosen) == len(current):
                self._ready = every
        return every

    async def call(self, name: str, arguments: str, context: ActionContext) -> ToolResult:
        """Call a tool by name with arguments as JSON. Errors are returned in the result."""
        run = RunInput(
            thread_id=context.thread_id,
            run_id=context.run_id,
            messages=(),
            properties=context.properties,
            headers=context.headers,
            user=context.user,
        )
        try:
            action = await self._find_action(name, run)
        except CopilotError as error:
            return ToolResult.failure(error.public, _find_hint(error))
        outcome = await execute(action, arguments, context, timeout=action.timeout or LOAD_TIMEOUT)
        error = None if outcome.error is None else parse_failure(outcome.result)
        if error is None:
            return ToolResult(outcome.result)
        return ToolResult.failure(error, _find_hint(outcome.error))

    async def call_request(self, request: Mapping[str, Any], context: ActionContext) -> ToolResult:
        """Handle a request of Copilot-LD's tool service: `{function: {name, arguments}}`."""
        function = as_object(request.get("function"))
        name = as_optional_text(function.get("name"))
        if not name:
            return ToolResult.failure("Invalid tool request: missing id or function")
        if name in self._problems:
            return ToolResult.failure(_find_reason(self._problems[name]))
        if not self._list_owners(name):
            return ToolResult.failure(f"Tool endpoint not found: {name}")
        arguments = as_optional_text(function.get("arguments"))
        if not arguments:
            return ToolResult.failure("Missing function arguments")
        return await self.call(name, arguments, context)

    async def describe(self, name: str, run: RunInput) -> Sequence[Action]:
        """Return the actions of one tool. Raises `CopilotError` if it is unreachable."""
        return await self._tools[name].build_actions(run)

    async def describe_all(self, run: RunInput) -> Sequence[ToolDescription]:
        """Return a user's tools, including unreachable ones with their errors."""
        await self._refresh()
        tools = (await self._select(run.user)).values()
        found = await asyncio.gather(*(_describe(tool, run) for tool in tools))
        problems = self._problems.items()
        never = [ToolDescription(name, None, (), _describe_problem(why)) for name, why in problems]
        return [*found, *never]

    def list_purposes(self) -> Mapping[str, str]:
        """Return a one-line purpose of each tool, without contacting endpoints."""
        return {name: tool.describe_purpose() for name, tool in self._tools.items()}

    async def check(self, run: RunInput, name: str | None = None) -> Sequence[Reachability]:
        """Contact the endpoint of one tool, or of each, without calling a tool."""
        tools = [tool for each, tool in self._tools.items() if name in (None, each)]
        found = await asyncio.gather(*(_check(tool, run) for tool in tools))
        problems = self._problems.items()
        never = [
            Reachability(each, "", False, _describe_problem(why))
            for each, why in problems
            if name in (None, each)
        ]
        return [*found, *never]

    async def aclose(self) -> None:
        for task in self._slow.values():
            task.cancel()
        self._slow.clear()
        shared = [*self._shared.values()]
        self._shared.clear()
        parts = [*(tool.endpoint for tool in self._tools.values()), *shared]
        await asyncio.gather(*(part.aclose() for part in parts))

    async def _refresh(self) -> None:
        """Reload changed files; unchanged tools keep their connections."""
        tools = await self._watcher.refresh()
        if tools is None:
            return
        gone = [tool for tool in self._tools.values() if tool not in tools.values()]
        self._tools, self._problems, self._fixed, self._ready = tools, {}, {}, None
        for tool in gone:
            if (task := self._slow.pop(tool.definition.name, None)) is not None:
                task.cancel()
            await tool.retire()
        self.on_change()

    def _find_files(self) -> Sequence[Path]:
        """Return the files. Raises `ConfigurationFailed` if there is none."""
        if self.path.is_dir():
            return sorted(it for it in self.path.iterdir() if it.suffix in _SUFFIXES)
        if not self.path.exists():
            raise ConfigurationFailed(
                f"There is no file or folder of tools '{self.path}'.",
                hint="Write one, such as tools.yml, or leave out the setting tools.",
            )
        return [self.path]

    def _rebuild(self, states: FileStates) -> Mapping[str, Tool]:
        """Return the tools of changed files. Raises `ConfigurationFailed`."""
        tools, problems = self._build(*self._read(states))
        if problems:
            raise ConfigurationFailed("\n".join(map(_describe_problem, problems.values())))
        return tools

    def _read(
        self, states: FileStates
    ) -> tuple[Mapping[str, tuple[ToolDefinition, Path]], Mapping[str, Any]]:
        """Return the tools, the folders of their files, and their shared services."""
        tools: dict[str, tuple[ToolDefinition, Path]] = {}
        services: dict[str, Any] = {}
        problems: list[str] = []
        for file in states:
            try:
                text = read_text(file)
                definitions = parse_tools(text, str(file))
                services |= parse_services(text, str(file))
            except ConfigurationFailed as error:
                problems.append(error.message)
                continue
            for name, definition in definitions.items():
                if name in tools:
                    other = tools[name][0].source
                    problems.append(f"{definition.source}: {other} has a tool {name!r}, too.")
                tools[name] = (definition, file.parent)
        if problems:
            raise ConfigurationFailed("\n".join(problems))
        return tools, services

    def _build(
        self,
        definitions: Mapping[str, tuple[ToolDefinition, Path]],
        services: Mapping[str, Any],
    ) -> tuple[Mapping[str, Tool], Mapping[str, ConfigurationFailed]]:
        """Return the tools, and the errors of misconfigured ones."""
        tools: dict[str, Tool] = {}
        problems: dict[str, ConfigurationFailed] = {}
        for name, (definition, folder) in definitions.items():
            surroundings = Surroundings(
                folder=folder,
                references=self._references,
                services=services,
                shared=self._shared,
            )
            old = self._tools.get(name)
            if old is not None and (old.definition, old.surroundings) == (definition, surroundings):
                tools[name] = old
                continue
            try:
                tools[name] = Tool(definition, surroundings, self._read_resources)
            except ConfigurationFailed as error:
                problems[name] = error
        return tools, problems

    async def _load(self, tool: Tool, run: RunInput) -> Sequence[Action]:
        """Return the actions of a tool, or none if it is unreachable or too slow."""
        name = tool.definition.name
        task = self._slow.pop(name, None)
        was_slow = task is not None
        if task is None or (task.done() and (task.cancelled() or task.result().error is not None)):
            # the task may outlive the run
            task = asyncio.create_task(capture_result(tool.build_actions(run)), name=f"tool:{name}")
        began = monotonic()
        if not was_slow:  # an endpoint that hangs delays a single run
            await asyncio.wait((task,), timeout=LOAD_TIMEOUT)
        if not task.done():
            self._slow[name] = task
            logger.warning("The tool %r is left out of this run: it does not answer.", name)
            return ()
        loaded = task.result()
        if loaded.error is None:
            return loaded.value
        if monotonic() - began > _QUICK:
            self._slow[name] = task
        logger.warning("The tool %r is left out of this run. %s", name, loaded.error)
        return ()

    async def _find_action(self, name: str, run: RunInput) -> Action:
        """Return the action with a name; only endpoints that may have it are contacted.

        Raises `CopilotError` with the endpoint's error if there is none.
        """
        await self._refresh()
        if name in self._problems:
            raise CopilotError(_describe_problem(self._problems[name]))
        chosen = await self._select(run.user)
        owners = [owner for owner in self._list_owners(name) if owner in chosen]
        if not owners:
            raise CopilotError(f"Tool endpoint not found: {name}")
        tool = self._tools[max(owners, key=len)]
        try:
            async with asyncio.timeout(LOAD_TIMEOUT):
                actions = await tool.build_actions(run)
        except TimeoutError:
            raise CopilotError(f"It did not answer within {LOAD_TIMEOUT:g} s.") from None
        for action in actions:
            if action.name == name:
                return action
        names = ", ".join(action.name for action in actions)
        raise CopilotError(f"Tool endpoint not found: {name}. There are: {names}.")

    async def _select(self, user: str | None) -> Mapping[str, Tool]:
        """Return the tools that a user may use."""
        tools = self._tools
        if self._select_names is None:
            return tools
        names = await self._select_names([*tools], user)
        return {name: tools[name] for name in names}

    def _list_owners(self, name: str) -> Sequence[str]:
        """Return the tools that may have an action with a name, by its prefix."""
        return [tool for tool in self._tools if name == tool or name.startswith(f"{tool}_")]


def _select_lasting(
    tools: Mapping[str, Tool], found: Mapping[str, Sequence[Action]]
) -> Mapping[str, Sequence[Action]]:
    """Return the actions of tools whose endpoints have a fixed description."""
    return {
        name: actions
        for name, actions in found.items()
        if actions and tools[name].endpoint.is_fixed
    }


def _describe_problem(error: ConfigurationFailed) -> str:
    """Return the position of an error, its description, and the valid values."""
    return f"{error.message} {error.hint}" if error.hint else error.message


def _find_reason(error: ConfigurationFailed) -> str:
    """Return an endpoint's own message about its options."""
    cause = error.__cause__
    return cause.message if isinstance(cause, ConfigurationFailed) else error.message


def _find_hint(error: BaseException | None) -> str | None:
    """Return the part of an error's hint that its message does not repeat."""
    if isinstance(error, CopilotError) and not error.is_hint_public:
        return error.hint
    return None


async def _describe(tool: Tool, run: RunInput) -> ToolDescription:
    definition = tool.definition
    try:
        async with asyncio.timeout(LOAD_TIMEOUT):
            actions = await tool.build_actions(run)
    except TimeoutError:
        error = f"It did not answer within {LOAD_TIMEOUT:g} s."
        return ToolDescription(definition.name, definition, (), error)
    except CopilotError as error:
        return ToolDescription(definition.name, definition, (), error.public)
    return ToolDescription(definition.name, definition, actions)


async def _check(tool: Tool, run: RunInput) -> Reachability:
    definition = tool.definition
    try:
        async with asyncio.timeout(LOAD_TIMEOUT):
            detail = await tool.endpoint.check(run)
            names = [action.name for action in await tool.build_actions(run)]
        if names != [definition.name]:
            detail = f"{detail}; {list_names(names)}"
        is_reachable = True
    except TimeoutError:
        is_reachable, detail = False, f"It did not answer within {LOAD_TIMEOUT:g} s."
    except CopilotError as error:
        is_reachable, detail = False, f"{error.message} {error.hint or ''}".strip()
    return Reachability(definition.name, definition.kind, is_reachable, detail)
