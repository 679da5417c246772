"""Asks a person in the terminal what a plan wants to know."""

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
"""Characters of each output that a task is about to use, that are printed."""


def answer_interrupt(
    question: Interrupt, may_ask: bool, *, is_approved: bool, plan: JsonObject
) -> Resume | None:
    """Return a person's answer to a page's question; its plan says what it is about.

    None if there is nobody who could give one, or wants to. `is_approved` agrees to what asks for
    an approval.
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
    """Return a person's answer to a question of a plan, and a note; None for no answer."""
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
    """Print what a task is about to use that asks for approval."""
    for one in as_objects(question.get("context")):
        text = clean_text(get_text(one, "output"))
        text = text if len(text) <= _MAX_CONTEXT else f"{text[:_MAX_CONTEXT]}…"
        typer.echo(f"  {clean_text(get_text(one, 'name'))}: {text}", err=is_error)


def _ask(text: str, properties: JsonObject) -> Any:
    """Ask until the answer is one, and return it as the schema has it."""
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
    """Ask for one of some words, of which the beginning is enough."""
    while True:
        word = _read_line(f"? {text} [{'/'.join(choices)}] ").lower()
        found = [choice for choice in choices if word and choice.startswith(word)]
        if len(found) == 1:
            return found[0]


def _read_line(prompt: str) -> str:
    """Return what a person writes on one line, without the spaces around it.

    `input` alone loses a Ctrl-C that comes after its prompt and before it reads: Python notes the
    signal, and then waits for a line. Here a signal wakes what waits. Raises `EOFError`.
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
