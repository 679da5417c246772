"""What `make run` offers to ask is answered from the pages that it takes in, without a key."""

import os
import re
from pathlib import Path

import pytest

from copilot_runtime import CopilotRuntime, DemoAdapter, Settings
from copilot_runtime.extensions.settings import load_settings
from copilot_runtime.testing import Client
from tests.documents import ROOT

pytestmark = pytest.mark.anyio

EXPECTED = {
    "Who is the captain of MV Tern?": "Captain of MV Tern",
    "Do dogs travel on a lead?": "Dogs travel on a lead",
}


def read_variable(name: str) -> str:
    """Return what the Makefile gives a variable where nobody has set it."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    (value,) = re.findall(rf"^run: export {name} \?= (.+)$", text, re.MULTILINE)
    inner = value.partition("pages)")[2].removeprefix(",").removesuffix(")")
    return (inner or "examples/knowledge/pages").replace("$(comma)", ",")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.chdir(ROOT)
    environ = {
        name: read_variable(name)
        for name in ("COPILOT_KNOWLEDGE_SOURCES", "COPILOT_KNOWLEDGE_SUGGESTIONS")
    }
    environ["COPILOT_KNOWLEDGE_STORAGE"] = f"local:{tmp_path}"
    environ["COPILOT_THREADS"] = "memory"
    return load_settings(os.devnull, environ)


def test_what_is_said_is_kept_for_the_page_traces_unless_there_are_settings() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    value = re.search(
        r"^ifeq \(\$\(wildcard copilot.yml\),\)\nrun: export (\w+) \?= (\w+)\nendif$",
        text,
        re.MULTILINE,
    )
    assert value is not None
    settings = load_settings(os.devnull, {value[1]: value[2]})
    assert settings.telemetry.content == "local"
    assert not settings.telemetry.export


def test_the_questions_are_those_that_are_tried_here(settings: Settings) -> None:
    assert settings.knowledge.suggestions == tuple(EXPECTED)


async def test_each_is_answered_with_a_source_that_opens(settings: Settings) -> None:
    async with Client(CopilotRuntime(DemoAdapter(pace=0), settings=settings)) as client:
        for question, words in EXPECTED.items():
            text = (await client.say(question)).text
            link = re.search(r"\]\((/graphql/knowledge/resources/[^)]+)\)", text)

            assert words in text
            assert link is not None
            page = await client.request("GET", link[1], headers={"accept": "text/html"})
            assert page.status == 200
