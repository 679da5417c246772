"""Prompts for the questions of a plan in the terminal."""

import os
import select
import signal
import sys
from collections.abc import Sequence
from typing import Any

import typer

from copilot_runtime.api.events import Interrupt
from copilot_runtime.api.run_input import Resume
from copilot_runtime.base.formatting import clean_text
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    as_list,
    as_objects,
    as_text,
    get_object,
    get_text,
    parse_text,
)

_WITH_RESULT = "done"
_WITHOUT_NOTE = ("approve", "retry")
_MAX_CONTEXT = 500
"""Maximum characters of each output that is printed as context of an approval."""


def answer_interrupt(
    question: Interrupt, may_ask: bool, *, is_approved: bool, plan: JsonObject
) -> Resume | None:
    """Prompt for the answer to an interrupt, with its context from `plan`.

    Returns `None` without `may_ask` or at the end of the input. `is_approved` answers approvals
    without a prompt.
    """
    properties = get_object(dict(question.response_schema or {}), "properties")
    if is_approved and "approved" in properties:
        return _build_resume(question, {"approved": True})
    text = clean_text(question.message or question.reason)
    for one in as_objects(plan.get("questions")):
        if question.interrupt_id == f"{plan.get('id')}/{one.get('id')}":
            print_context(one, is_error=not may_ask)
    if not may_ask:
        typer.echo(f"? {text}", err=True)
        return None
    try:
        return _build_resume(question, _ask(text, properties))
    except EOFError:
        typer.echo()
        return None


def ask_question(question: JsonObject) -> tuple[str, str] | None:
    """Prompt for the answer to a question, and return it with a note; `None` at the end
    of input.
    """
    text = clean_text(get_text(question, "text"))
    print_context(question)
    answers = [as_text(answer) for answer in as_list(question.get("answers"))]
    try:
        if "resolve" in answers:
            note = _read_line(f"? {text} ")
            return ("resolve", note) if note else ("cancel", "")
        answer = _choose(text, answers)
        return answer, _ask_note(answer)
    except EOFError:
        typer.echo()
        return None


def print_context(question: JsonObject, *, is_error: bool = False) -> None:
    """Print the outputs that a task depends on, as context of its approval."""
    for one in as_objects(question.get("context")):
        text = clean_text(get_text(one, "output"))
        text = text if len(text) <= _MAX_CONTEXT else f"{text[:_MAX_CONTEXT]}…"
        typer.echo(f"  {clean_text(get_text(one, 'name'))}: {text}", err=is_error)


def _ask(text: str, properties: JsonObject) -> Any:
    """Prompt until the answer is valid, and return the payload that the schema describes."""
    if "approved" in properties:
        if _choose(text, ("yes", "no")) == "yes":
            return {"approved": True}
        return {"approved": False, "note": _ask_note("reject")}
    if choices := [str(choice) for choice in as_list(get_object(properties, "answer").get("enum"))]:
        answer = _choose(text, choices)
        return {"answer": answer, "note": _ask_note(answer)}
    return parse_text(_read_line(f"? {text} "))


def _ask_note(answer: str) -> str:
    if answer in _WITHOUT_NOTE:
        return ""
    prompt = "  Its result: " if answer == _WITH_RESULT else "  Why? (may be empty) "
    return _read_line(prompt)


def _choose(text: str, choices: Sequence[str]) -> str:
    """Prompt until the input is an unambiguous prefix of one of the choices."""
    while True:
        word = _read_line(f"? {text} [{'/'.join(choices)}] ").lower()
        found = [choice for choice in choices if word and choice.startswith(word)]
        if len(found) == 1:
            return found[0]


def _read_line(prompt: str) -> str:
    """Read a line, without surrounding whitespace. Raises `EOFError`.

    `input` alone loses a Ctrl-C between its prompt and its read: Python records the signal, and
    then waits for a line. Here, a signal wakes up the wait.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer)
    try:
        typer.echo(prompt, nl=False)
        select.select([sys.stdin, reader], (), ())
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)
    return input().strip()


def _build_resume(question: Interrupt, payload: Any) -> Resume:
    return Resume(value="", interrupt_id=question.interrupt_id, payload=payload)
