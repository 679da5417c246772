"""Failed tests run again, alone; unstable ones are listed, and three of them leave a run green."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

UNSTABLE = """
import pathlib

def test_{number}():
    mark = pathlib.Path(__file__).with_name("mark-{number}")
    first = not mark.exists()
    mark.touch()
    assert not first, "only alone"
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs pytest with our plugin in a folder of its own."""
    (tmp_path / "pytest.ini").touch()

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        plugin = ["-p", "tests.plugin.rerun", "-p", "xdist", "--rerun-failed"]
        return subprocess.run(
            [sys.executable, "-m", "pytest", *plugin, *options],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )

    return run


def write_unstable_tests(folder: Path, count: int) -> None:
    for number in range(count):
        (folder / f"test_{number}.py").write_text(UNSTABLE.format(number=number))


@pytest.mark.parametrize("options", [(), ("--numprocesses=2",)], ids=["one process", "xdist"])
def test_a_run_is_green_if_what_failed_passes_alone(
    tmp_path: Path, run: Run, options: tuple[str, ...]
) -> None:
    write_unstable_tests(tmp_path, 3)
    (tmp_path / "test_sound.py").write_text("def test_sound(): pass\n")
    done = run(*options)

    assert done.returncode == 0, done.stdout
    assert "UNSTABLE test_0.py::test_0 - AssertionError: only alone" in done.stdout
    assert "1 passed, 3 unstable" in done.stdout


def test_a_run_is_red_if_a_test_fails_alone(tmp_path: Path, run: Run) -> None:
    write_unstable_tests(tmp_path, 1)
    (tmp_path / "test_wrong.py").write_text("def test_wrong(): assert 1 == 2\n")
    done = run()

    assert done.returncode == 1
    assert "1 failed, 1 unstable" in done.stdout
    assert "FAILED test_wrong.py::test_wrong - assert 1 == 2" in done.stdout


def test_a_run_is_red_if_more_than_three_are_unstable(tmp_path: Path, run: Run) -> None:
    write_unstable_tests(tmp_path, 4)
    done = run()

    assert done.returncode == 1
    assert "4 unstable" in done.stdout


def test_nothing_runs_again_with_maxfail(tmp_path: Path, run: Run) -> None:
    write_unstable_tests(tmp_path, 1)
    done = run("--maxfail=5")

    assert (done.returncode, "unstable" in done.stdout) == (1, False)


def test_nothing_runs_again_if_more_than_twenty_fail(tmp_path: Path, run: Run) -> None:
    write_unstable_tests(tmp_path, 21)
    done = run()

    assert (done.returncode, "unstable" in done.stdout) == (1, False)


def test_a_run_is_red_if_a_worker_ends_before_its_tests(tmp_path: Path, run: Run) -> None:
    write_unstable_tests(tmp_path, 1)
    (tmp_path / "test_dead.py").write_text("import os\ndef test_dead(): os._exit(1)\n")
    done = run("--numprocesses=2", "--max-worker-restart=0")

    assert (done.returncode, "unstable" in done.stdout) == (1, False)


def test_a_run_is_red_if_a_file_cannot_be_imported(tmp_path: Path, run: Run) -> None:
    write_unstable_tests(tmp_path, 1)
    (tmp_path / "test_broken.py").write_text("import no_such_module\n")
    done = run("--continue-on-collection-errors")

    assert done.returncode != 0
