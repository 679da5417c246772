"""Plans tasks, reads their prompts, and judges and joins their outcomes, for the demo model."""

import re
from collections.abc import Mapping
from typing import Any

from copilot_runtime.adapters.demo.matching import NOTE, Call, split_words
from copilot_runtime.adapters.demo.question import MONTHS

REPORT_EVALUATION = "report_evaluation"
"""The tool with which a planner has an outcome judged."""

_STEPS = (
    "answer book calculate check compare count create describe draw explain find list plan "
    "recommend report send show summarise summarize tell translate write "
    "are can did do does how is what when where which who why will"
)
_BORDER = re.compile(
    r"(?<=[^\d\s][.?!;])(?<!\.\w\.)(?<!\b(?:dr|mr|no|st|vs)\.)(?<!\bmrs\.)\s+|\n+|"
    rf"(?:,|(?<!\s))\s+(?:and|then|and then)\s+(?=(?:{'|'.join(_STEPS.split())})\b)",
    re.IGNORECASE,
)
"""Where a request is split into tasks: between sentences, and before a further step."""
_OPENING = re.compile(r"^[^.?!:\n]*:\s+(?=\S)")
_MARK = re.compile(r"^\s*(?:[-*\N{BULLET}]|\d+[.)]|and|then)\s+", re.IGNORECASE)
_LATER = re.compile(
    r"^(?:recommend|summari[sz]e|write)\b|\b(?:summary|overview)\b|\b(?:them|the best)$",
    re.IGNORECASE,
)
"""A task that needs the outcomes of those before it."""
_COUNTS = {*split_words("average chart count many most much number revenue share sum total")}
_FACT = re.compile(
    r"\b(?i:how many|how much|number)\b"
    r"(?!.*\b(?:average|by|chart|each|every|per|revenue|rows|total)\b)"
    r".*\b(?:(?:has|have|had|does|can|could|costs?)\b"
    r"|(?:are|at|in|is|of|on|there) (?:an?|my|our|the|this|your)\b"
    rf"|(?:at|in|of|on) (?!{'|'.join(map(str.title, MONTHS))})[A-Z])",
)
"""A number that is a property of one thing, which pages say rather than tables."""
_DATA = "Questions about data with numbers, tables and charts."
"""The analyst's description of the questions that it answers."""
_TASK = re.compile(
    r"# The request\n.*\n# Your task: .*?\*\*Purpose:\*\* (.*?)(?=\n\n\*\*|\Z)", re.DOTALL
)
_OUTCOMES = "# The outcomes\n\n"
_EARLIER = re.compile(r"^# What came of the tasks before it\n\n(.*?)(?=^# |\Z)", re.DOTALL | re.M)


def write_tasks(text: str) -> list[Mapping[str, Any]]:
    """Return a task for each question or step of a text, without an opening such as `To do: `."""
    pieces = split_request(_OPENING.sub("", text))
    steps = {one[:200]: one for piece in pieces if (one := _MARK.sub("", piece).strip(" ,.;"))}
    tasks: list[Mapping[str, Any]] = []
    for name, one in steps.items():
        needs = [task["name"] for task in tasks] if _LATER.search(one) else []
        kind = _DATA if is_about_data(one) and not needs else ""
        tasks.append({"name": name, "purpose": one, "applicability": kind, "depends_on": needs})
    return tasks


def is_about_data(text: str) -> bool:
    """Return whether a question asks for a number, which tables say rather than pages."""
    return bool(_COUNTS & {*split_words(text)}) and not _FACT.search(text)


def split_request(text: str) -> list[str]:
    """Return the questions and the steps of a text."""
    return _BORDER.split(text)


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


def summarize_outcomes(prompt: str) -> str:
    """Return the beginnings of the outcomes that a task depends on; empty if there are none."""
    found = _EARLIER.search(prompt)
    firsts = re.findall(r"^## (.*)\n\n(.+)$", found[1], re.MULTILINE) if found else []
    lines = "\n".join(f"- {purpose}: {first}" for purpose, first in firsts)
    return f"In short:\n\n{lines}\n\n{NOTE}" if lines else ""
