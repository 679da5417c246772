"""Runs files, and the functions within a file, in a random order that a seed repeats.

The cases of a function keep their order, and files that take long start first. In between, pytest
groups the tests that share a parametrized fixture of a module or of the session. With xdist, each
file, or folder of `SHARED_SERVERS`, is run by one worker.
"""

import random
from collections.abc import Generator
from importlib import import_module
from typing import Any

import pytest

from tests.plugin.lists import LONG_FILES, SHARED_SERVERS
from tests.plugin.selection import matches, relative_path


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--order-seed",
        metavar="SEED",
        help="seed of the random order of tests; 'none' keeps the order of the files",
    )


def pytest_configure(config: pytest.Config) -> None:
    controller: dict[str, Any] = getattr(config, "workerinput", {})
    if "order_seed" in controller:
        config.option.order_seed = controller["order_seed"]
    elif config.option.order_seed is None:
        config.option.order_seed = str(random.SystemRandom().randrange(1_000_000))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a worker of xdist the seed of its controller: all must collect in the same order."""
    node.workerinput["order_seed"] = node.config.option.order_seed


def pytest_report_header(config: pytest.Config) -> str:
    return f"order: --order-seed={config.option.order_seed}"


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    files = list(dict.fromkeys(item.path for item in items))
    seed = config.option.order_seed
    if seed != "none":
        dice = random.Random(seed)
        dice.shuffle(files)
        functions = list(dict.fromkeys(map(_function, items)))
        dice.shuffle(functions)
        places = {function: place for place, function in enumerate(functions)}
        items.sort(key=lambda item: places[_function(item)])
    files.sort(key=lambda path: not matches(relative_path(path), LONG_FILES))
    ranks = {path: rank for rank, path in enumerate(files)}
    items.sort(key=lambda item: ranks[item.path])
    yield
    items.sort(key=lambda item: ranks[item.path])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.option.dist != "loadfile":
        return None
    scheduling: Any = import_module("xdist.scheduler").LoadFileScheduling(config, log)
    scheduling._split_scope = choose_scope
    return scheduling


def choose_scope(nodeid: str) -> str:
    """Return the file of a test, or the folder whose files the same worker is to run."""
    file = nodeid.partition("::")[0]
    folders = [folder for folder in SHARED_SERVERS if file.startswith(f"tests/{folder}/")]
    return folders[0] if folders else file


def _function(item: pytest.Item) -> str:
    """Return the node id of a test without its parameters."""
    return item.nodeid.partition("[")[0]
