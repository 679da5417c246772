"""Plans tasks, reads their prompts, and judges and joins their outcomes, for the demo model."""

import re
from collections.abc import Mapping

from copilot_runtime.adapters.demo.matching import NOTE, Call, split_clauses, split_words

REPORT_EVALUATION = "report_evaluation"
"""The tool with which a planner has an outcome judged."""
QUESTIONS_OF_A_TRIP = (
    "Who is the captain of {0}? Where do dogs travel on {0}? Is there coffee on {0}?"
)

_TRIP = re.compile(r"\b(?:trip|weekend|day|crossing)\b.* (?:on|with) ((?:[A-Z]\w*\s?)+)")
_COUNTS = {*split_words("average chart many most much number revenue share sum total")}
_DATA = "Questions about data with numbers, tables and charts."
"""The analyst's description of the questions that it answers."""
_TASK = re.compile(
    r"# The request\n.*\n# Your task: .*?\*\*Purpose:\*\* (.*?)(?=\n\n\*\*|\Z)", re.DOTALL
)
_OUTCOMES = "# The outcomes\n\n"


def write_tasks(text: str) -> list[Mapping[str, str]]:
    """Return a task for each clause after a colon, for questions of a trip, or for the text."""
    trip = _TRIP.search(text)
    questions = QUESTIONS_OF_A_TRIP.format(trip[1].strip()) if trip else ""
    listed = split_clauses(text.partition(": ")[2] or questions) or [text]
    return [
        {
            "name": name,
            "purpose": one,
            "applicability": _DATA if _COUNTS & {*split_words(one)} else "",
        }
        for name, one in {one[:200]: one for one in listed}.items()
    ]


def read_task(prompt: str) -> str:
    """Return the purpose of a task from its prompt; an empty string for other texts."""
    found = _TASK.match(prompt)
    return found[1] if found else ""


def judge_outcome(prompt: str) -> Call:
    """Return the call that reports an outcome as good, unless a task of it failed."""
    failures = re.findall(r"^It is \w+\. (.+)$", prompt, re.MULTILINE)
    verdict = {"passed": not failures, "missing": " ".join(failures)}
    return Call(REPORT_EVALUATION, verdict)


def join_outcomes(prompt: str) -> str:
    """Return outcomes, each below its purpose; an empty string for other texts."""
    text = prompt.partition(_OUTCOMES)[2].replace(NOTE, "").strip()
    text = re.sub(r"^## [^:\n]*: (.*)$", r"**\1**", text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", f"{text}\n\n{NOTE}") if text else ""
