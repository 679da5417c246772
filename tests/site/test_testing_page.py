"""What the page about testing shows is a folder of tests that pass."""

import os
import subprocess
import sys
from pathlib import Path

from tests.documents import ROOT, blocks


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    programs = blocks("python", "learn/testing")
    for number, block in enumerate(programs):
        name = "conftest.py" if "pytest_plugins" in block.code else f"test_{number}.py"
        (tmp_path / name).write_text(block.code)
    count = sum(block.code.count("def test_") for block in programs)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:langsmith_plugin", "-W", "error"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{count + 1} passed" in done.stdout  # one of them is there for both protocols
