"""A test during which an event loop stands still fails; imports and marked tests do not."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

TESTS = """
import asyncio
import sys
from time import thread_time

import pytest

def work():
    began = thread_time()
    while thread_time() < began + 2:
        pass

async def answer():
    work()

def test_long():
    asyncio.run(answer())

@pytest.mark.stalls(reason="It is asked for.")
def test_marked():
    asyncio.run(answer())

async def import_module():
    import slow

def test_import():
    asyncio.run(import_module())

def test_thread():
    asyncio.run(asyncio.to_thread(work))
"""


def test_a_test_fails_if_a_callback_takes_long(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "slow.py").write_text("from test_loops import work\nwork()\n")
    (tmp_path / "test_loops.py").write_text(TESTS)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.plugin.stalls", "--quiet", "-rf"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )

    assert "The event loop stood still for 2." in done.stdout, done.stdout
    assert "<coroutine object answer" in done.stdout
    assert "1 failed, 3 passed" in done.stdout
