"""The tools of a file or a folder, as a source of actions that follows what the files say."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from copilot_runtime.actions.execute import execute, parse_failure
from copilot_runtime.api.action import Action, ActionContext, ActionSource
from copilot_runtime.api.caller import SelectNames
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.concurrency import capture
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import as_object, as_optional_text
from copilot_runtime.config.file_watcher import FileStates, FileWatcher, read_text
from copilot_runtime.extensions.tools.catalog.definition import (
    ToolDefinition,
    parse_services,
    parse_tools,
)
from copilot_runtime.extensions.tools.catalog.endpoints import Surroundings
from copilot_runtime.extensions.tools.catalog.references import References
from copilot_runtime.extensions.tools.catalog.results import ReadResources
from copilot_runtime.extensions.tools.catalog.tool import Tool, list_names

LOAD_TIMEOUT = 10.0
"""Seconds that a run waits for an endpoint to say what it does; such a tool is then left out."""

_QUICK = 1.0
"""Seconds in which an endpoint may fail and be waited for again by the next run."""

_SUFFIXES = (".yml", ".yaml")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gave, or why it gave nothing. `hint` is for the operator alone."""

    content: str
    error: str | None = None
    hint: str | None = None

    @classmethod
    def failure(cls, message: str, hint: str | None = None) -> "ToolResult":
        """Return the result of a call that failed: the error is its content, too."""
        return cls(dumps({"error": message}).decode(), message, hint)


@dataclass(frozen=True, slots=True)
class ToolDescription:
    """A tool as its operator wrote it, and the actions that models get of it."""

    name: str
    definition: ToolDefinition | None
    """None for a tool that can never work."""
    actions: Sequence[Action] = ()
    error: str | None = None
    """Why there are no actions."""


@dataclass(frozen=True, slots=True)
class Reachability:
    """Whether the endpoint of a tool can be called, and what was seen of it."""

    tool: str
    kind: str
    is_reachable: bool
    detail: str


class ToolCatalog(ActionSource):
    """The tools that an operator wrote: in a file, or in the `.yml` files of a folder.

    A mistake is an error when the server starts; later, the tools stay as they were, and the log
    names the line. `read_resources` reads what tools name in place of giving it, `select_names`
    says which tools a user may use, and `interval` is the shortest time, in seconds, between two
    looks at the files.
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
        """Called whenever the tools have been read again."""
        self._references = references or References()
        self._read_resources = read_resources
        self._tools: Mapping[str, Tool] = {}
        self._fixed: Mapping[str, Sequence[Action]] = {}
        """The actions of tools whose endpoints always say the same."""
        self._ready: Sequence[Action] | None = None
        """All actions, if those of all tools are fixed."""
        self._problems: Mapping[str, ConfigurationFailed] = {}
        self._slow: dict[str, asyncio.Task[Any]] = {}
        self._shared: dict[str, Any] = {}

    @property
    def definitions(self) -> Mapping[str, ToolDefinition]:
        """The tools by name, as the files have them."""
        return {name: tool.definition for name, tool in self._tools.items()}

    @property
    def names(self) -> Sequence[str]:
        """The names of all tools, those that can never work among them."""
        return [*self._tools, *self._problems]

    @property
    def problems(self) -> Mapping[str, str]:
        """Why tools can never work, by name, where `load` was not strict."""
        return {name: _describe_problem(problem) for name, problem in self._problems.items()}

    def has_tool(self, name: str) -> bool:
        """Return whether a call of this name would be one of a tool here."""
        return name in self._problems or bool(self._list_owners(name))

    def load(self, *, is_strict: bool = True) -> None:
        """Read all files now. Raises `ConfigurationFailed`, with all mistakes.

        Without `is_strict`, a tool whose endpoint can never work is there, and answers with why.
        """
        tools, problems = self._build(*self._read(self._watcher.look()))
        if is_strict and problems:
            raise ConfigurationFailed("\n".join(map(_describe_problem, problems.values())))
        self._tools, self._problems = tools, problems

    async def actions(self, run: RunInput) -> Sequence[Action]:
        """Return what models may call; what cannot be reached is left out, with a warning."""
        await self._refresh()
        current = self._tools
        chosen, fixed = await self._select(run.user), self._fixed
        if self._ready is not None and len(chosen) == len(current):
            return self._ready
        tools = {name: tool for name, tool in chosen.items() if name not in fixed}
        loaded = await asyncio.gather(*(self._load(tool, run) for tool in tools.values()))
        found = dict(zip(tools, loaded, strict=True))
        every = [action for name in chosen for action in fixed.get(name) or found.get(name) or ()]
        if self._tools is current:  # else another run has read the files again meanwhile
            self._fixed = {**fixed, **_select_lasting(tools, found)}
            if len(self._fixed) == len(chosen) == len(current):
                self._ready = every
        return every

    async def call(self, name: str, arguments: str, context: ActionContext) -> ToolResult:
        """Call a tool by name with arguments as JSON. Whatever goes wrong is in the result."""
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
        """Answer a request of Copilot-LD's tool service: `{function: {name, arguments}}`."""
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
        """Return the actions of one tool. Raises `CopilotError` if it cannot be reached."""
        return await self._tools[name].build_actions(run)

    async def describe_all(self, run: RunInput) -> Sequence[ToolDescription]:
        """Return the tools of a user, also those that cannot be reached, with the reason."""
        await self._refresh()
        tools = (await self._select(run.user)).values()
        found = await asyncio.gather(*(_describe(tool, run) for tool in tools))
        problems = self._problems.items()
        never = [ToolDescription(name, None, (), _describe_problem(why)) for name, why in problems]
        return [*found, *never]

    def list_purposes(self) -> Mapping[str, str]:
        """Return a line of what each tool is for; no endpoint is reached."""
        return {name: tool.describe_purpose() for name, tool in self._tools.items()}

    async def check(self, run: RunInput, name: str | None = None) -> Sequence[Reachability]:
        """Reach the endpoint of one tool, or of each, without calling any tool."""
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
        """Close the connections of all endpoints."""
        for task in self._slow.values():
            task.cancel()
        self._slow.clear()
        shared = [*self._shared.values()]
        self._shared.clear()
        parts = [*(tool.endpoint for tool in self._tools.values()), *shared]
        await asyncio.gather(*(part.aclose() for part in parts))

    async def _refresh(self) -> None:
        """Read the files again if they changed; what was not touched keeps its connections."""
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
        """Return the tools of files that have changed. Raises `ConfigurationFailed`."""
        tools, problems = self._build(*self._read(states))
        if problems:
            raise ConfigurationFailed("\n".join(map(_describe_problem, problems.values())))
        return tools

    def _read(
        self, states: FileStates
    ) -> tuple[Mapping[str, tuple[ToolDefinition, Path]], Mapping[str, Any]]:
        """Return the tools with the folders of their files, and what they share."""
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
        """Return the tools, and what is wrong with those that can never work."""
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
        """Return the actions of a tool; none if it is not to be had, or not soon enough."""
        name = tool.definition.name
        task = self._slow.pop(name, None)
        was_slow = task is not None
        if task is None or (task.done() and (task.cancelled() or task.result().error is not None)):
            # it may outlive the run
            task = asyncio.create_task(capture(tool.build_actions(run)), name=f"tool:{name}")
        began = monotonic()
        if not was_slow:  # one that hangs delays a single run
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
        """Return the action of a name; other tools are not asked what they are.

        Raises `CopilotError` with why there is none, as its endpoint says it.
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
        """Return the tools that may have an action of a name: it begins with theirs."""
        return [tool for tool in self._tools if name == tool or name.startswith(f"{tool}_")]


def _select_lasting(
    tools: Mapping[str, Tool], found: Mapping[str, Sequence[Action]]
) -> Mapping[str, Sequence[Action]]:
    """Return the actions of those tools whose endpoints will say the same the next time."""
    return {
        name: actions
        for name, actions in found.items()
        if actions and tools[name].endpoint.is_fixed
    }


def _describe_problem(error: ConfigurationFailed) -> str:
    """Return where a mistake stands, what is wrong, and what would be right."""
    return f"{error.message} {error.hint}" if error.hint else error.message


def _find_reason(error: ConfigurationFailed) -> str:
    """Return what the endpoint itself said of its options, in its own words."""
    cause = error.__cause__
    return cause.message if isinstance(cause, ConfigurationFailed) else error.message


def _find_hint(error: BaseException | None) -> str | None:
    """Return what the message of an error does not say yet."""
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
