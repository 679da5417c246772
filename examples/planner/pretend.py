"""A model that knows by rules how an extra sailing is planned, and plays everybody in it."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence

from copilot_runtime import Adapter, Events
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.api import ChatRequest
from copilot_runtime.api.events import Event, Usage
from copilot_runtime.api.messages import ResultMessage, TextMessage, new_id

PLAN = [
    {
        "name": "timetable",
        "purpose": "Work out a timetable for the extra sailing.",
        "subtasks": [
            {"name": "tides", "purpose": "Look up the tides at the harbours on Saturday."},
            {"name": "weather", "purpose": "Look up the weather at the harbours on Saturday."},
            {
                "name": "times",
                "purpose": "Work out the times of the timetable, from tides and weather.",
                "depends_on": ["tides", "weather"],
            },
        ],
    },
    {
        "name": "fares",
        "purpose": "Work out the fares of the extra sailing.",
        "evaluation": "There is a fare for adults and one for children.",
    },
    {
        "name": "notice",
        "purpose": "Write a notice to passengers, from the facts found.",
        "depends_on": ["timetable", "fares"],
    },
    {
        "name": "publish",
        "purpose": "Publish the finished notice on the website.",
        "depends_on": ["notice"],
        "needs_approval": True,
    },
]

NOTICE = (
    "An extra sailing on Saturday: MV Gannet leaves Kellsay at 09:10 and is at St Brannoc at "
    "10:00; back at 21:35. Adults pay £18, children £9. All are welcome on board!"
)

CALLS: Mapping[str, Sequence[tuple[str, Mapping[str, str]]]] = {
    "tides": [
        ("find_tides", {"harbour": "Kellsay", "day": "Saturday"}),
        ("find_tides", {"harbour": "St Brannoc", "day": "Saturday"}),
    ],
    "weather": [("find_weather", {"day": "Saturday"})],
    "fares": [("find_fare", {"passenger": "adult"})],
    "children": [("find_fare", {"passenger": "child"})],
    "publish": [("publish_notice", {"text": NOTICE})],
}
"""What each task calls first."""

WORDS = {
    "tides": "High water at Kellsay and St Brannoc is at 09:40 and 22:05.",
    "weather": "Wind south-west 3, a slight sea, no fog: MV Gannet can sail.",
    "times": "Kellsay 09:10, St Brannoc 10:00; St Brannoc 20:45, Kellsay 21:35.",
    "fares": "Adults pay £18.",
    "children": "Children pay £9.",
    "notice": NOTICE,
    "publish": "The notice is published: https://skerryline.example/notices/1",
}

WELCOME = "The agent planner plans extra sailings. Ask it for one to St Brannoc on Saturday."

MISSING = {
    "passed": False,
    "missing": "The fare for children.",
    "tasks": [{"name": "children", "purpose": "Work out the fare of the sailing for children."}],
}


async def _wait(step: str) -> None:  # noqa: ARG001
    await asyncio.sleep(1.2)


class PretendModel(Adapter):
    """Plans, works, judges and sums up: what it is asked for, it reads off the request.

    `pause` is awaited before each answer with the name of the step, so that a person can watch.
    """

    def __init__(self, pause: Callable[[str], Awaitable[None]] = _wait) -> None:
        self.pause = pause

    async def stream(self, request: ChatRequest) -> Events:
        """Answer as whoever is asked."""
        step, answer = _find_answer(request)
        await self.pause(step)
        for event in answer:
            await asyncio.sleep(0)
            yield event
        read = sum(len(str(message)) for message in request.messages) // 4
        dollars = (read + 240) / 1_000_000  # made up, as the page Costs says of the demo
        yield Usage(
            model="demo", provider="demo", input_tokens=read, output_tokens=60, dollars=dollars
        )


def _find_answer(request: ChatRequest) -> tuple[str, Sequence[Event]]:
    """Return the name of the step that is asked for, and the answer."""
    tools = {action.name for action in request.actions}
    question = _find_question(request)
    if "create_plan" in tools:
        return "plan", _plan(question, tools)
    if "report_evaluation" in tools:
        verdict = {"passed": True} if "Children pay" in question else MISSING
        return "judge", call("report_evaluation", verdict, id=new_id())
    if "# The outcomes" not in question and "# Your task:" not in question:
        return "welcome", _say(WELCOME)
    if (found := re.search(r"^# Your task: (\w+)$", question, re.MULTILINE)) is None:
        return "summary", _say(_sum_up(question))
    name = found[1]
    if name in CALLS and not any(isinstance(one, ResultMessage) for one in request.messages):
        return name, [
            event for tool, arguments in CALLS[name] for event in call(tool, arguments, id=new_id())
        ]
    return f"{name}:words", _say(WORDS.get(name, "Nothing is known about that."))


def _plan(question: str, tools: set[str]) -> Sequence[Event]:
    if "retry_plan" in tools and "again" in question.lower():
        return call("retry_plan", {}, id=new_id())
    if "follow_plan" in tools and "how far" in question.lower():
        return call("follow_plan", {}, id=new_id())
    if "sailing" in question.lower():
        return call("create_plan", {"tasks": PLAN}, id=new_id())
    return _say(WELCOME)


def _sum_up(question: str) -> str:
    """Return the outcomes of some tasks as one; of all, what was published and where."""
    outcomes = question.partition("# The outcomes\n\n")[2]
    sections = re.split(r"^## (\w+): .*\n\n", outcomes, flags=re.MULTILINE)
    bodies = dict(zip(sections[1::2], (text.strip() for text in sections[2::2]), strict=True))
    if "publish" in bodies:
        published = bodies["publish"]
        if WORDS["publish"] not in published:
            published = f"Nothing is published. {published}"
        return f"{published}\n\n> {bodies['notice']}"
    return " ".join(filter(None, (sections[0].strip(), *bodies.values())))


def _find_question(request: ChatRequest) -> str:
    return next(
        (
            message.content
            for message in reversed(request.messages)
            if isinstance(message, TextMessage) and message.role == "user"
        ),
        "",
    )


def _say(text: str) -> Sequence[Event]:
    return say([f"{word} " for word in text.split(" ")], id=new_id())
