"""`copilot-runtime new`: the project that it starts works as it is."""

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from copilot_runtime.base.errors import Misuse
from copilot_runtime.cli.main import cli
from copilot_runtime.cli.new import MODELS
from tests.cli.test_cli import CLEAN, COMMAND
from tests.in_one_test import in_one_test
from tests.processes import finished, running


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work") / "library"
    done = CliRunner().invoke(cli, ["new", str(folder)])
    lines = done.stdout.splitlines()
    assert lines[1].endswith("copilot-runtime serve app:app --reload")
    assert lines[3] == "# in a second terminal, in the same folder"
    return folder


def test_a_new_project_passes_its_own_tests_and_scenarios(project: Path) -> None:
    own = [str(Path(sys.executable).with_name("pytest")), "-q", "-p", "no:cacheprovider"]
    for command in (own, [*COMMAND, "test", "--target", "app:runtime", "--offline"]):
        done = finished(command, cwd=project, env=CLEAN)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_new_project_serves_its_pages_and_a_chat(project: Path) -> None:
    serve = [*COMMAND, "serve", "app:app", "--port", "0"]
    with running(serve, cwd=project, env=CLEAN) as server:
        banner = server.until(r"(?s)\A.*^Ctrl-C.*$")[0]
        origin = re.search(r"http://[\d.:]+", banner)
        assert origin is not None
        url = f"{origin[0]}/api/copilotkit"
        ask = [*COMMAND, "chat", "--url", url, "-m", "Are you open on Saturday?"]
        done = finished(ask, cwd=project, env=CLEAN)

    assert "a program with DemoAdapter() alone has to name" in banner
    assert (done.returncode, done.stderr) == (0, "")
    assert "10 to 14" in done.stdout


@in_one_test("model", [name for name, adapter in MODELS.items() if adapter])
def test_a_new_project_imports_the_adapter_of_its_model(model: str, tmp_path: Path) -> None:
    CliRunner().invoke(cli, ["new", str(tmp_path / model), "--model", model, "--no-react"])
    text = (tmp_path / model / "app.py").read_text()
    found = re.search(r"from (\S+) import (\w+)\n\nDay", text)

    assert found is not None
    assert hasattr(import_module(found[1]), found[2])
    assert f"adapter={found[2]}()," in text
    assert "DemoAdapter" not in text
    assert not (tmp_path / model / "page").exists()


@in_one_test(("key", "adapter"), [("", "DemoAdapter"), ("sk-test", "OpenAIAdapter")])
def test_a_new_project_has_a_model_as_soon_as_there_is_a_key(
    key: str, adapter: str, project: Path
) -> None:
    words = "import app; print(type(app.runtime.adapter).__name__)"
    env = {**CLEAN, "OPENAI_API_KEY": key}
    done = finished([sys.executable, "-c", words], cwd=project, env=env)

    assert done.stdout.splitlines() == [adapter]


def test_a_folder_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    done = CliRunner().invoke(cli, ["new", str(tmp_path)])

    assert isinstance(done.exception, Misuse)
    assert "is not an empty folder" in done.exception.message
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
