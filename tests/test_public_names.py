"""The front door is narrow."""

import subprocess
import sys
from importlib import import_module

import pytest

import copilot_runtime
from tests.in_one_test import in_one_test


def test_there_are_at_most_twenty_names_in_order() -> None:
    names = copilot_runtime.__all__

    assert len(names) <= 20
    assert names == sorted(set(names))


@in_one_test("name", copilot_runtime.__all__)
def test_a_public_name_can_be_imported_alone(name: str) -> None:
    code = f"from copilot_runtime import {name}; assert {name} is not None"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_the_table_of_names_has_no_stranger() -> None:
    assert set(copilot_runtime._WHERE) <= set(copilot_runtime.__all__)  # pyright: ignore[reportPrivateUsage]  # the table under test


@in_one_test("name", copilot_runtime.__all__)
def test_a_name_is_the_one_of_its_module(name: str) -> None:
    where = copilot_runtime._WHERE.get(name, "api")  # pyright: ignore[reportPrivateUsage]  # the table under test

    assert getattr(copilot_runtime, name) is getattr(
        import_module(f"copilot_runtime.{where}"), name
    )
    assert name in dir(copilot_runtime)


def test_another_name_is_an_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'CopilotRuntimes'"):
        copilot_runtime.CopilotRuntimes  # noqa: B018  # reading it is the test
