"""`copilot-runtime new`: start a project from the files in `template`."""

import shutil
import sys
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from copilot_runtime.base.errors import Misuse, UnknownName

_TEMPLATE = Path(__file__).parent / "template"
_CHOICE = 'OpenAIAdapter() if os.environ.get("OPENAI_API_KEY") else DemoAdapter()'
_IMPORTS = ("CopilotRuntime, DemoAdapter, OpenAIAdapter, action", "CopilotRuntime, action")
MODELS = {
    "demo": None,
    "openai": ("copilot_runtime.adapters.openai", "OpenAIAdapter"),
    "anthropic": ("copilot_runtime.adapters.anthropic", "AnthropicAdapter"),
    "google": ("copilot_runtime.adapters.google", "GoogleAdapter"),
    "ollama": ("copilot_runtime.adapters.openai.presets", "ollama"),
}
"""Answer → module and name of the adapter; `None` for that of the template."""


def new(
    name: Annotated[Path, typer.Argument(metavar="NAME", help="Folder of the project.")],
    model: Annotated[
        str | None,
        typer.Option(
            help=f"Who answers: {', '.join(MODELS)}. Default: demo, until OPENAI_API_KEY is set."
        ),
    ] = None,
    react: Annotated[
        bool | None, typer.Option("--react/--no-react", help="Add a React page. Default: yes.")
    ] = None,
) -> None:
    """Start a project: application, action, tests, Dockerfile, page.

    \b
    copilot-runtime new library
    copilot-runtime new library --model openai --no-react

    In a terminal, what no option says is asked. A folder with files in it is refused.
    """
    if name.is_file() or (name.is_dir() and any(name.iterdir())):
        raise Misuse(f"'{name}' is not an empty folder.", hint="Name another one.")
    asks = sys.stdin.isatty()
    if model is None:
        model = str(typer.prompt("Who answers", "demo", err=True)) if asks else "demo"
    if model not in MODELS:
        raise UnknownName("model", model, MODELS)
    if react is None:
        react = typer.confirm("Add a React page", default=True, err=True) if asks else True
    skipped = ["__pycache__", *(() if react else ("page",))]
    shutil.copytree(_TEMPLATE, name, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*skipped))
    if adapter := MODELS[model]:
        _name_adapter(name / "app.py", *adapter)
    program, python = _find_command("copilot-runtime"), _find_command(Path(sys.executable).name)
    typer.echo(f"cd {quote(str(name))}\n{program} serve app:app --reload")
    typer.echo("\n# in a second terminal, in the same folder")
    typer.echo(f"{program} chat --url http://127.0.0.1:8000/api/copilotkit")
    if react:
        typer.echo("(cd page && npm install && npm run dev)  # the React page, until Ctrl-C")
    typer.echo("\n# without a server")
    typer.echo(f"{program} test --target app:runtime")
    typer.echo(f"{python} -m pip install pytest httpx2 && {python} -m pytest")


def _name_adapter(app: Path, module: str, adapter: str) -> None:
    """Write an adapter into a program in place of the choice by key."""
    text = app.read_text(encoding="utf-8").replace("import os\n", "")
    text = text.replace(f"{_IMPORTS[0]}\n", f"{_IMPORTS[1]}\nfrom {module} import {adapter}\n")
    app.write_text(text.replace(_CHOICE, f"{adapter}()"), encoding="utf-8")


def _find_command(name: str) -> str:
    """Return a command of this environment for a shell, as a path if PATH has another or none."""
    beside = Path(sys.executable).with_name(name)
    if shutil.which(name) == str(beside) or not beside.is_file():
        return name
    return quote(str(beside))
