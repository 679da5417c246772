"""A folder with an application and scenarios, and the command that plays them there."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from typer.testing import CliRunner

from copilot_runtime.cli.main import cli

_NUMBERS = count(1)

APP = """
import asyncio
from copilot_runtime import CopilotRuntime, DemoAdapter, action
from copilot_runtime.base.errors import Refused

@action
def get_weather(city: str, unit: str = "C") -> str:
    "Look up the weather."
    return f"4 degrees {unit} in {city}"

@action
def fail() -> str:
    "Fail."
    raise ValueError("broken")

@action
async def hang() -> str:
    "Take for ever."
    await asyncio.Event().wait()

async def only_weather(events, run):
    if "politics" in getattr(run.messages[-1], "content", ""):
        raise Refused("Let us talk about the weather.")
    async for event in events:
        yield event

runtime = CopilotRuntime(
    DemoAdapter(pace=0), actions=[get_weather, fail, hang], guardrails=[only_weather]
)
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of the command."""

    status: int
    output: str
    report: Any = None

    @property
    def attempt(self) -> Any:
        """The first attempt of the first scenario in the report."""
        return self.report["scenarios"][0]["attempts"][0]

    @property
    def failures(self) -> list[str]:
        """What did not hold in it."""
        return [failure["name"] for failure in self.attempt.get("failures", ())]


Play = Callable[..., Outcome]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Play:
    """Return a function that plays scenarios against a program, in a folder of their own."""
    monkeypatch.chdir(tmp_path)

    def invoke(
        scenarios: str | Mapping[str, str],
        *options: str,
        app: str | None = APP,
        folder: str = ".",
        reports: bool = True,
    ) -> Outcome:
        files = {"chat.test.yml": scenarios} if isinstance(scenarios, str) else scenarios
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(dedent(text))
        words = ["test", folder, *options]
        if app is not None:
            program = f"program_{next(_NUMBERS)}.py"  # a name is imported once in a process
            (tmp_path / program).write_text(app)
            words += ["--target", f"{program}:runtime"]
        if reports:
            words += ["--report", "report.json"]
        result = CliRunner().invoke(cli, words)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        file = tmp_path / "report.json"
        report = json.loads(file.read_text()) if file.exists() else None
        file.unlink(missing_ok=True)
        return Outcome(result.exit_code, result.output, report)

    return invoke
