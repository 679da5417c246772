"""The lists of nightly tests name files and tests that exist, and the order repeats by its seed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugin import lists
from tests.plugin.selection import TESTS, is_nightly_run

ROOT = TESTS.parent


def python_files(pattern: str) -> str:
    return pattern if pattern.endswith(".py") else f"{pattern}.py"


def test_each_file_of_the_lists_exists() -> None:
    patterns = {
        *lists.NIGHTLY_FILES,
        *lists.PROCESSES,
        *lists.EXTENSIVE,
        *lists.SLOW,
        *lists.LONG_FILES,
        *lists.SHARED_SERVERS,
        *lists.DAILY,
        *lists.NIGHTLY_TESTS,
    }
    assert [pattern for pattern in sorted(patterns) if not any(TESTS.glob(pattern))] == []


def test_each_function_of_the_lists_exists() -> None:
    listed = {
        **{files: functions.split() for files, functions in lists.NIGHTLY_TESTS.items()},
        **lists.DAILY,
    }
    missing = [
        f"{files}::{function}"
        for files, functions in listed.items()
        for function in functions
        if not any(
            f"def {function}(" in path.read_text() for path in TESTS.glob(files) if path.is_file()
        )
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("expression", "is_nightly"), [("", True), ("not nightly", False), ("quick", False)]
)
def test_without_a_selection_nightly_tests_run(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, expression: str, is_nightly: bool
) -> None:
    monkeypatch.setattr(pytestconfig.option, "markexpr", expression)
    assert is_nightly_run(pytestconfig) is is_nightly


def collect(folder: Path, seed: str) -> list[str]:
    options = ["-p", "tests.plugin.order", "-p", "no:langsmith_plugin", f"--order-seed={seed}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--collect-only", "-q"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_a_seed_repeats_the_order_of_files_and_functions(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").touch()
    for file in "abcdefgh":
        (tmp_path / f"test_{file}.py").write_text("def test_x(): pass\ndef test_y(): pass\n")
    first = collect(tmp_path, "1")

    assert first == collect(tmp_path, "1")
    assert first != collect(tmp_path, "2")
    assert [line.partition("::")[0] for line in first[::2]] == [
        line.partition("::")[0] for line in first[1::2]
    ]
    assert collect(tmp_path, "none") == sorted(first)


def test_workers_collect_in_the_same_order(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").touch()
    for file in "abcdefgh":
        (tmp_path / f"test_{file}.py").write_text("def test_x(): pass\ndef test_y(): pass\n")
    options = ["-p", "tests.plugin.order", "-p", "no:langsmith_plugin", "--numprocesses=2"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert (done.returncode, "16 passed" in done.stdout) == (0, True), done.stdout
