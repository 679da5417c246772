"""The wheel, in an environment with what it requires and no extra, is the whole program."""

import json
import os
import signal
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import distribution, packages_distributions
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from copilot_runtime import __version__
from tests.processes import Program, finished, running
from tests.wire.client import PLAIN, chat, user

ROOT = Path(__file__).parent.parent
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("COPILOT", "OPENAI", "PYTHON", "VIRTUAL_ENV", "PIP_"))
}
HIDE = """
import sys
from importlib.machinery import PathFinder


class Finder(PathFinder):
    hidden = frozenset({})

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in cls.hidden:
            return None
        return PathFinder.find_spec(name, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
"""
"""Hides the packages of extras, as if they were not installed."""
OFFLINE = ["--disable-pip-version-check", "install", "--quiet", "--no-deps", "--no-index"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    _do(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    [wheel] = folder.iterdir()
    return wheel


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a fresh environment that sees what it requires of this one."""
    folder = tmp_path_factory.mktemp("environment")
    _do(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    _do(sys.executable, "-m", "pip", "--python", python, *OFFLINE, wheel, cwd=folder)
    [packages] = folder.glob("lib/python*/site-packages")
    # a .pth file adds a folder, but not what .pth files in there add: not our source tree
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    (packages / "sitecustomize.py").write_text(HIDE.format(find_extras()))
    return folder


def find_extras() -> list[str]:
    """Return the top-level modules that a bare installation of the package lacks."""
    required: set[tuple[str, str]] = set()
    waiting = [("copilot-runtime", "")]
    while waiting:
        name, extra = package = waiting.pop()
        if package in required:
            continue
        required.add(package)
        for line in distribution(name).requires or ():
            other = Requirement(line)
            if other.marker is None or other.marker.evaluate({"extra": extra}):
                waiting += [(canonicalize_name(other.name), one) for one in ("", *other.extras)]
    names = {name for name, _ in required}
    owners = packages_distributions().items()
    return [module for module, them in owners if not {*map(canonicalize_name, them)} & names]


@pytest.fixture
def server(environment: Path, tmp_path: Path) -> Iterator[tuple[str, Program]]:
    """Serve the demo from an empty folder; yield the address, and the program to end."""
    command = [environment / "bin" / "copilot-runtime", "serve", "--port", "0"]
    with running(command, cwd=tmp_path, env=CLEAN) as program:
        address = program.until(r"http://[\w.:]+")[0]
        program.until("^Ctrl-C")
        yield address, program


def test_the_wheel_holds_what_is_served_and_no_tests(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    folders = {name.partition("/")[0] for name in names}

    assert wheel.name == f"copilot_runtime-{__version__}-py3-none-any.whl"
    assert folders == {"copilot_runtime", f"copilot_runtime-{__version__}.dist-info"}
    parts = ("frame.html", "base.css", "page.html", "page.css")
    page = {f"copilot_runtime/extensions/console/{name}" for name in parts}
    assert page | {"copilot_runtime/extensions/console/scripts/page.js"} <= {*names}
    assert "copilot_runtime/py.typed" in names
    skills = {name for name in names if name.endswith("/SKILL.md")}
    builtin = "copilot_runtime/extensions/analyst/prompt/builtin"
    templates = "copilot_runtime/extensions/analyst/cli/templates/"
    assert skills == {
        *(f"{builtin}/{name}/SKILL.md" for name in ("analysis", "plot", "sql")),
        f"{templates}skills/house_style/SKILL.md",
    }
    assert [name for name in names if name.endswith("licenses/LICENSE")]
    tests = [name for name in names if "test" in name]
    own = ("copilot_runtime/testing/", "copilot_runtime/cli/template/", templates)
    assert [name for name in tests if not name.startswith(own)] == []


def test_the_wheel_holds_every_module(wheel: Path) -> None:
    package = ROOT / "copilot_runtime"
    modules = {str(path.relative_to(ROOT)) for path in package.rglob("*.py")}

    assert modules - {*ZipFile(wheel).namelist()} == set()


def test_the_installed_package_is_the_one_that_runs(environment: Path, tmp_path: Path) -> None:
    code = "import copilot_runtime; print(copilot_runtime.__file__)"
    file = _do(environment / "bin" / "python", "-c", code, cwd=tmp_path)

    assert Path(file.strip()).is_relative_to(environment)


def test_a_project_is_made_without_any_extra(environment: Path, tmp_path: Path) -> None:
    assert {"lxml", "numpy", "openai", "duckdb", "mcp"} <= {*find_extras()}
    made = _do(environment / "bin" / "copilot-runtime", "new", "library", cwd=tmp_path)

    assert "copilot-runtime" in made
    assert (tmp_path / "library" / "app.py").exists()


def test_the_installed_program_serves_the_page_and_a_chat(
    server: tuple[str, Program],
) -> None:
    url, program = server

    page = _fetch(f"{url}/")
    answer = json.loads(_fetch(f"{url}/graphql", chat(user("think"), query=PLAIN)))
    program.process.send_signal(signal.SIGINT)

    response = answer["data"]["generateCopilotResponse"]
    assert 'data-endpoint="/graphql"' in page
    assert response["status"]["code"] == "Success"
    assert response["messages"][-1]["content"]
    assert program.wait() == 0


def _do(*command: Any, cwd: Path) -> str:
    """Run a command to its end, and return what it said."""
    done = finished(command, cwd=cwd, env=CLEAN)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _fetch(url: str, body: Any = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    asked = Request(url, data, {"content-type": "application/json"})
    with build_opener(ProxyHandler({})).open(asked) as answer:
        return answer.read().decode()
