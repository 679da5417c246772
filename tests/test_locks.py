"""The lock files hold what is declared and imported: both are installed without dependencies."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from tests.in_one_test import in_one_test

ROOT = Path(__file__).parent.parent
SERVING, ALL = "requirements.lock", "requirements-dev.lock"

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def applies(requirement: Requirement, extras: Iterable[str] = ()) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": it}) for it in ("", *extras))


def read_lock(name: str) -> dict[NormalizedName, str]:
    """Return the version of each package that a lock file has for this Python."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.lstrip().startswith("#")]
    return {
        canonicalize_name(it.name): str(it.specifier).removeprefix("==")
        for it in pins
        if applies(it)
    }


def list_declared(*extras: str, group: str) -> Iterator[Requirement]:
    """Yield what the project requires, what some extras add, and what a group has."""
    project = PROJECT["project"]
    texts = [*project["dependencies"], *list_group(group)]
    for extra in extras:
        texts += project["optional-dependencies"][extra]
    for text in texts:
        if (requirement := Requirement(text)).name != project["name"] and applies(requirement):
            yield requirement


def list_group(name: str) -> Iterator[str]:
    for item in PROJECT["dependency-groups"][name]:
        if isinstance(item, str):
            yield item
        else:
            yield from list_group(item["include-group"])


def declared_for(lock: str) -> list[Requirement]:
    if lock == SERVING:
        return [*list_declared("knowledge", group="build")]
    return [*list_declared(*PROJECT["project"]["optional-dependencies"], group="dev")]


def list_missing(lock: str, requirements: Iterable[Requirement]) -> list[str]:
    """Return those that a lock file has not, or in a version that does not satisfy them."""
    versions = read_lock(lock)
    return [
        str(it)
        for it in requirements
        if (version := versions.get(canonicalize_name(it.name))) is None
        or not it.specifier.contains(version, prereleases=True)
    ]


@in_one_test("lock", [SERVING, ALL])
def test_what_is_declared_is_in_the_lock(lock: str) -> None:
    assert list_missing(lock, declared_for(lock)) == []


@in_one_test("lock", [SERVING, ALL])
def test_what_a_locked_package_needs_is_in_the_lock(lock: str) -> None:
    wanted = {canonicalize_name(it.name): it.extras for it in declared_for(lock)}
    missing: dict[str, list[str]] = {}
    for name in read_lock(lock):
        try:
            needs = distribution(name).requires or []
        except PackageNotFoundError:
            continue  # locked for all systems, installed on some
        required = [it for it in map(Requirement, needs) if applies(it, wanted.get(name, ()))]
        if found := list_missing(lock, required):
            missing[name] = found

    assert missing == {}


def test_what_serves_has_the_versions_that_are_tested() -> None:
    assert read_lock(SERVING).items() - read_lock(ALL).items() == set()


SERVE = """
import json, sys
from importlib.metadata import packages_distributions
from packaging.utils import canonicalize_name

LOCKED = {"copilot-runtime", *json.loads(sys.argv[1])}
OTHERS = {
    module
    for module, names in packages_distributions().items()
    if not any(canonicalize_name(name) in LOCKED for name in names)
}

sys.modules.update(dict.fromkeys(OTHERS))  # found by nobody

import asyncio
import copilot_runtime.cli.main, copilot_runtime.cli.reload, copilot_runtime.cli.serve
from copilot_runtime import CopilotRuntime, DemoAdapter
from copilot_runtime.extensions.settings import load_settings
from copilot_runtime.testing import Client

async def main():
    settings = load_settings(environ=json.loads(sys.argv[2]))
    runtime = CopilotRuntime(
        DemoAdapter(pace=0), settings=settings, authenticate=lambda request: "ann"
    )
    texts = []
    async with Client(runtime) as agui, Client(runtime, protocol="graphql") as graphql:
        for client in (agui, graphql):
            texts.append((await client.say("Who is the captain?")).text)
        query = {"query": "[?errors > `0`]"}
        answers = [
            await agui.request("GET", "/"),
            await agui.request("GET", "/openapi.json"),
            await agui.request("GET", "/graphql/traces"),
            await agui.request("POST", "/graphql/traces/query", query),
        ]
    print(json.dumps([texts, [answer.status for answer in answers]]))

asyncio.run(main())
"""
"""Answers chats, and reads traces, as if nothing were installed but what is locked."""


def test_the_lock_of_what_serves_is_enough_to_serve(tmp_path: Path) -> None:
    page = tmp_path / "pages" / "ship.md"
    page.parent.mkdir()
    page.write_text("# MV Tern\n\nThe captain of MV Tern is Ida.\n", encoding="utf-8")
    environ = {
        "COPILOT_THREADS": f"sqlite:{tmp_path}/threads.db",
        "COPILOT_KNOWLEDGE_SOURCES": str(page.parent),
        "COPILOT_KNOWLEDGE_STORAGE": f"local:{tmp_path}/knowledge",
        "COPILOT_TELEMETRY_OPERATORS": "ann",
    }
    command = [sys.executable, "-c", SERVE, json.dumps([*read_lock(SERVING)]), json.dumps(environ)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    texts, statuses = json.loads(done.stdout)

    assert [text for text in texts if "The captain of MV Tern is Ida." not in text] == []
    assert statuses == [200] * 4
