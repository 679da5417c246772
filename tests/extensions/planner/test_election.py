"""A task goes to whom it is for, by all that both say of themselves."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.api import Adapter, Agent, ChatRequest, RunInput
from copilot_runtime.api.events import Events
from copilot_runtime.testing import call, say
from tests.in_one_test import in_one_test

COOK = """---
description: An assistant.
purpose: Cook meals.
instructions: Choose recipes and cook.
applicability: For food.
evaluation: The meal tastes good.
---
You cook.
"""
PLUMBER = """---
description: An assistant.
purpose: Repair pipes.
instructions: Find the leak, and close the water first.
applicability: For bathrooms and kitchens.
evaluation: No water drips.
---
You repair.
"""
LETTER = {
    "purpose": "Translate the letter to French.",
    "instructions": "Keep the tone.",
    "applicability": "For somebody who knows languages.",
    "evaluation": "The letter is in French.",
}


class Translator(Agent):
    description = "Translates texts to other languages, such as French."

    async def run(self, run: RunInput) -> Events:
        for event in say("Chère Anne,"):
            yield event


class Model(Adapter):
    """Plans one task, and finds every outcome good."""

    def __init__(self, task: Any) -> None:
        self.task = {"name": "task", **task}

    async def stream(self, request: ChatRequest) -> Events:
        names = {action.name for action in request.actions}
        if "create_plan" in names:
            answer: Sequence[Any] = call("create_plan", {"tasks": [self.task]})
        elif "report_evaluation" in names:
            answer = call("report_evaluation", {"passed": True})
        else:
            answer = say("Done.")
        for event in answer:
            yield event


def elect(folder: Path, task: Any, **planner: Any) -> tuple[str, str]:
    """Return who does a task, and why nobody does."""
    (folder / "cook.agent.md").write_text(COOK)
    (folder / "plumber.agent.md").write_text(PLUMBER)
    settings = Settings(
        threads="memory",
        planner={"name": "planner", "store": "memory", **planner},  # pyright: ignore[reportArgumentType]
        assistants={"folder": str(folder)},  # pyright: ignore[reportArgumentType]
    )
    runtime = CopilotRuntime(Model(task), agents={"translator": Translator()}, settings=settings)
    body = {
        "threadId": "t",
        "runId": "r",
        "state": {},
        "messages": [{"id": "q", "role": "user", "content": "Do it"}],
        "tools": [],
        "context": [],
        "forwardedProps": {},
    }
    with TestClient(runtime.app()) as client:
        client.post("/graphql/agent/planner/run", json=body)
        (plan,) = ask(client, '{ plans(threadId: "t") { plans { id } } }')["plans"]["plans"]
        query = f'{{ plan(id: "{plan["id"]}") {{ tasks {{ assistant reason }} }} }}'
        (task,) = ask(client, query)["plan"]["tasks"]
    return task["assistant"], task["reason"]


def ask(client: TestClient, query: str) -> Any:
    return client.post("/graphql", json={"query": query}).json()["data"]


@in_one_test(
    ("task", "assistant"),
    [
        ({"purpose": "Repair the pipe in the bathroom."}, "plumber"),
        ({"purpose": "Do it.", "instructions": "Close the water."}, "plumber"),
        ({"purpose": "Do it.", "applicability": "For food."}, "cook"),
        ({"purpose": "Do it.", "evaluation": "The meal is good."}, "cook"),
    ],
)
def test_each_of_the_four_properties_counts_on_both_sides(
    tmp_path: Path, task: Any, assistant: str
) -> None:
    assert elect(tmp_path, task)[0] == assistant


def test_who_has_but_a_description_is_found_among_those_with_four_properties(
    tmp_path: Path,
) -> None:
    assert elect(tmp_path, LETTER)[0] == "translator"


def test_what_fits_nobody_is_done_by_the_model_or_the_fallback(tmp_path: Path) -> None:
    task = {
        "purpose": "Zebra xylophone.",
        "instructions": "Quartz jukebox.",
        "applicability": "Vivid kumquat.",
        "evaluation": "Sphinx judge.",
    }
    assert elect(tmp_path, task)[0] == "assistant"
    assistant, reason = elect(tmp_path, task, fallback="")
    assert assistant == ""
    assert reason.startswith("No assistant fits the task 'task': the nearest are ")
    assert elect(tmp_path, task, fallback="cook")[0] == "cook"
