"""A plugin adds commands to `copilot-runtime`."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from copilot_runtime.cli.main import cli
from copilot_runtime.extensions import COMMANDS

PLUGIN = """
from copilot_runtime.app.extension import Extension

class Weather(Extension):
    name = "weather"
    commands = {"forecast": "acme_weather:forecast"}

def forecast(city: str = "Rome") -> None:
    'Print the forecast of a city.'
    print(f"Sunny in {city}.")
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line where the package in a folder is installed."""
    return subprocess.run(
        [sys.executable, "-m", "copilot_runtime", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{Path.cwd()}"},
    )


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a folder with an installed package that has the extension `weather`."""
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[copilot_runtime.extensions]\nweather = acme_weather:Weather\n"
    )
    (tmp_path / "acme_weather.py").write_text(PLUGIN)
    return tmp_path


def test_a_command_of_a_plugin_runs_with_its_options(package: Path) -> None:
    done = run(package, "forecast", "--city", "Oslo")

    assert (done.stdout, done.returncode) == ("Sunny in Oslo.\n", 0)


def test_a_plugin_that_cannot_be_imported_leaves_the_other_commands(package: Path) -> None:
    (package / "acme_weather.py").write_text("import nowhere_to_be_found")

    done = run(package, "--version")

    assert done.returncode == 0
    assert done.stdout.startswith("copilot-runtime ")


def test_a_command_that_cannot_be_added_leaves_the_others_and_is_named(package: Path) -> None:
    places = {"settings": ":forecast", "nothing": ":nothing", "number": ":five", "exit": "2:x"}
    commands = {name: f"acme_weather{place}" for name, place in places.items()}
    code = PLUGIN.replace('{"forecast": "acme_weather:forecast"}', str(commands))
    (package / "acme_weather.py").write_text(code + "\nfive = 5\n")
    (package / "acme_weather2.py").write_text("raise SystemExit")

    done = run(package, "--version")

    assert done.returncode == 0
    for name in commands:
        assert f"The command '{name}' of weather is missing" in done.stderr


def test_the_table_of_commands_is_on_the_command_line() -> None:
    root: Any = get_command(cli)
    for name in COMMANDS:
        command = root
        for word in name.split():
            command = command.commands[word]


def test_the_help_shows_at_most_twelve_commands_in_two_sections() -> None:
    shown = CliRunner().invoke(cli, ["--help"]).stdout
    _, commands, groups = re.split(r"\n(?:Commands|Groups):\n", shown)
    rows = [line for line in f"{commands}{groups}".splitlines() if line.strip()]

    assert len(rows) <= 12
    assert not any(row.endswith("...") for row in rows)


def test_a_misspelt_command_is_guessed_in_every_group() -> None:
    said = CliRunner().invoke(cli, ["ingst", "pages"]).stderr

    assert "No such command 'ingst'. Did you mean `copilot-runtime knowledge ingest`?" in said


def test_a_chat_takes_its_server_as_an_argument_too() -> None:
    done = CliRunner().invoke(cli, ["chat", "http://127.0.0.1:1/graphql", "-m", "hi"])

    assert "Connection error" in f"{done.exception}"


@pytest.mark.parametrize(
    ("old", "new"),
    [("backup", "operate backup"), ("plan", "plans start"), ("mcp", "develop mcp")],
)
def test_a_command_that_is_typed_without_its_group_is_run_and_its_name_is_said(
    old: str, new: str
) -> None:
    done = CliRunner().invoke(cli, [old, "--help"])

    assert f"The command is `copilot-runtime {new}` now." in done.stderr
    assert f"{new} [OPTIONS]" in done.stdout
