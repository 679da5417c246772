"""Lines of the log have time, level and logger under any server, as text or as JSON."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from copilot_runtime.logs import add_fallback_handler, build_formatter

UNCONFIGURED = """
import asyncio, logging
from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.testing import Client, ScriptedAdapter

async def main():
    settings = Settings(threads="memory", log_format=FORMAT)
    async with Client(CopilotRuntime(ScriptedAdapter(), settings=settings)) as client:
        logging.getLogger("copilot_runtime.example").info("Half an \\ud83c emoji")
        logging.getLogger("someone.else").info("not ours")
        CONFIGURE
        logging.getLogger("copilot_runtime.example").warning("second")

asyncio.run(main())
"""


def log_of(log_format: str, configure: str = "") -> list[str]:
    """Return the log of a program whose server configures none, such as uvicorn's for us."""
    code = UNCONFIGURED.replace("FORMAT", repr(log_format)).replace("CONFIGURE", configure)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stderr.splitlines()


@pytest.fixture
def logger() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(build_formatter("json"))
    logger = logging.getLogger("tests.logs")
    logger.addHandler(handler)
    yield logger, text
    logger.removeHandler(handler)


def test_a_server_that_configures_no_log_gets_time_level_and_logger() -> None:
    first, second = log_of("text")

    assert first.endswith(" INFO copilot_runtime.example: Half an \\ud83c emoji")
    assert first[:2] == "20"
    assert second.endswith(" WARNING copilot_runtime.example: second")


def test_a_line_of_json_is_one_object() -> None:
    first, _ = map(json.loads, log_of("json"))

    assert first["level"] == "info"
    assert first["logger"] == "copilot_runtime.example"
    assert first["message"] == "Half an ? emoji"
    assert first["time"].endswith("+00:00")


def test_a_log_that_the_application_configures_is_the_only_one() -> None:
    lines = log_of("text", 'logging.basicConfig(format="mine %(message)s")')

    assert lines[1:] == ["mine second"]


def test_json_has_the_traceback_and_what_was_added(
    logger: tuple[logging.Logger, io.StringIO],
) -> None:
    log, text = logger
    try:
        raise LookupError("a\nbug")
    except LookupError:
        log.exception("It %s", "broke", extra={"chat": "t1", "odd": {1: object}})
    [line] = text.getvalue().splitlines()
    fields = json.loads(line)

    assert fields["message"] == "It broke"
    assert fields["exception"].startswith("Traceback")
    assert fields["odd"] == {"1": "<class 'object'>"}


@pytest.mark.parametrize("odd", ["half \ud83c", 2**70, {(1, 2): 3}])
def test_no_line_of_json_is_lost_for_what_was_added(
    odd: Any, logger: tuple[logging.Logger, io.StringIO]
) -> None:
    log, text = logger
    log.warning("Well", extra={"odd": odd})
    fields = json.loads(text.getvalue())

    assert (fields["message"], fields["odd"]) == ("Well", repr(odd))


def test_a_log_that_is_configured_is_left_alone() -> None:
    package = logging.getLogger("copilot_runtime")
    before = [*package.handlers]
    add_fallback_handler("info", "text")  # pytest has handlers

    assert package.handlers == before
