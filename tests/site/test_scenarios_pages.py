"""The scenarios of the documents pass."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from copilot_runtime.cli.main import cli
from tests.documents import Block, blocks

PAGES = ("scenarios/index", "scenarios/how-it-works")


@pytest.mark.parametrize("block", [it for page in PAGES for it in blocks("yml", page)], ids=str)
def test_the_scenarios_of_a_page_pass(
    block: Block, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    [program] = blocks("python", "scenarios/index")
    monkeypatch.chdir(tmp_path)
    name = f"main_{block.page.rpartition('/')[2].replace('-', '_')}_{block.line}"
    Path(f"{name}.py").write_text(program.code)
    Path("a.test.yml").write_text(block.code)
    result = CliRunner().invoke(cli, ["test", "--target", f"{name}:runtime", "--offline"])

    assert result.exit_code == 0, result.output
