"""Validate answers to interrupts: the question must be open and the answer must fit its schema."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from copilot_runtime.actions.json_schema import limit_dialect
from copilot_runtime.agui.outcome import encode_langgraph_value, is_of_langgraph
from copilot_runtime.api.events import (
    AgentState,
    Custom,
    Event,
    Interrupt,
    MessagesSnapshot,
    RunFailed,
    RunFinished,
    RunStarted,
    is_question,
)
from copilot_runtime.api.run_input import Resume, RunInput
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsonvalue import as_object, parse_text
from copilot_runtime.threads.store import StoredRun

_BEFORE_WORK = (RunStarted, MessagesSnapshot, AgentState, RunFailed)
"""Types of the events of a run in which the agent rejected the answer before doing any work."""

_MOST_ERRORS = 100
"""Maximum number of validation errors that are compared to report the most relevant one."""

_LONGEST = 300
"""Maximum length of a validation message, in characters."""

logger = logging.getLogger(__name__)


def find_asking_run(runs: Sequence[StoredRun]) -> StoredRun | None:
    """Return the run of a thread whose questions are still open, or `None`.

    Each run closes the questions of the run before it: it answers them, continues without an
    answer, or asks again. An answer counts once, even if its run fails, because a tool may already
    have run. Questions stay open only if the agent rejected the answer before doing any work.
    """
    for run in reversed(runs):
        if any(map(is_question, run.events)):
            return run if isinstance(run.events[-1], RunFinished) else None
        if not _was_refused(run):
            return None
    return None


def answers_same(one: RunInput, other: RunInput) -> bool:
    """Return `True` if two requests answer the same question with the same value."""
    return any(
        (a.interrupt_id, a.value) == (b.interrupt_id, b.value)
        for a in one.resume
        for b in other.resume
    )


async def answers_question(resumes: Sequence[Resume], runs: Sequence[StoredRun]) -> bool:
    """Return `True` if the answers refer to open questions of a thread."""
    try:
        await check_answers(resumes, runs)
    except Misuse:
        return False
    return bool(resumes)


async def check_answers(resumes: Sequence[Resume], runs: Sequence[StoredRun]) -> None:
    """Raise `Misuse` if an answer refers to no open question or does not fit its schema."""
    asking = find_asking_run(runs)
    pending = [] if asking is None else _list_questions(asking.events)
    past = [it for run in runs if run is not asking for it in _list_questions(run.events)]
    for resume in resumes:
        question = _find_question(resume, pending, past)
        pending.remove(question)
        past.append(question)  # a question takes one answer per request
        await _check_form(resume, question)


def check_agent(run: RunInput, asking: StoredRun) -> None:
    """Raise `Misuse` if an answer is sent to an agent that did not ask the question.

    A v1 frontend sends the answer to the agent that the chat handed off to, all other clients send
    it to the chat; a request may also name no agent.
    """
    if not run.resume or run.agent_name == asking.agent:
        return
    if run.is_v1 and (run.agent is None or _takes_part(run.agent, asking)):
        return
    raise Misuse(
        "The agent does not wait for this answer: another agent of this conversation has asked "
        "the question.",
        hint=f"Send the answer to the agent {asking.agent[:100]!r}; its question is still open.",
    )


def _takes_part(agent: str, run: StoredRun) -> bool:
    """Return `True` if a chat's run includes a handoff to this agent.

    The identifiers of the agent's questions then start with its name.
    """
    return any(
        (isinstance(event, Interrupt) and event.interrupt_id.startswith(f"{agent}/"))
        or (isinstance(event, AgentState) and event.agent == agent)
        for event in run.events
    )


def _list_questions(events: Iterable[Event]) -> list[Interrupt]:
    """Return the questions of a run. Old questions have no identifier, only a value."""
    return [
        event if isinstance(event, Interrupt) else Interrupt(interrupt_id="", value=event.value)
        for event in events
        if isinstance(event, Interrupt) or (isinstance(event, Custom) and is_question(event))
    ]


def _find_question(
    resume: Resume, pending: Sequence[Interrupt], past: Sequence[Interrupt]
) -> Interrupt:
    """Return the open question that an answer refers to. Raises `Misuse` if there is none."""
    for question in pending:
        if _is_answer(resume, question):
            return question
    is_past = any(_is_answer(resume, question) for question in past)
    if is_past or (pending == [] and resume.interrupt_id is None):
        raise Misuse(
            "The agent does not wait for this answer: it has been given before, or the "
            "conversation has gone on without it.",
            hint="An answer counts once. Ask the agent again, and it may ask the person again.",
        )
    if resume.interrupt_id is not None:
        raise Misuse(
            "The agent does not wait for this answer: there is no such question in this "
            "conversation.",
            hint=f"No interrupt of the thread has the id {resume.interrupt_id[:100]!r}.",
        )
    return pending[0]  # the frontend may have changed the value that identifies the question


def _is_answer(resume: Resume, question: Interrupt) -> bool:
    """Return `True` if an answer refers to a question: by its identifier, or in v1 by its value."""
    if resume.interrupt_id is not None:
        return resume.interrupt_id == question.interrupt_id
    if resume.value == question.value:
        return True
    if is_of_langgraph(question) and resume.value == encode_langgraph_value(question):
        return True
    value = parse_text(resume.value)
    fields = as_object(value)
    # the whole interrupt identifies a question without a value
    return value == question.value or ("reason" in fields and fields.get("id") == _id(question))


def _id(question: Interrupt) -> Any:
    return question.interrupt_id or None


async def _check_form(resume: Resume, question: Interrupt) -> None:
    """Raise `Misuse` if an answer does not match the JSON schema of its question."""
    schema = question.response_schema
    if schema is None or resume.status == "cancelled":
        return
    # in a thread: jsonschema takes 0.1 s to import, and validating a long answer may be slow
    misfit = await call(_find_misfit, _read_values(resume, schema), schema)
    if misfit is not None:
        raise Misuse(
            f"The agent cannot go on with this answer: {misfit}",
            hint="The answer has to fit the responseSchema of the interrupt.",
        )


def _read_values(resume: Resume, schema: Mapping[str, Any]) -> Sequence[Any]:
    """Return the possible readings of an answer; an approval may be a plain boolean."""
    value = resume.payload
    if resume.interrupt_id is None and value is None:
        value = parse_text(resume.response or "")
    if "approved" not in as_object(schema.get("properties")):
        return [value]
    decision = parse_text(value)
    return [value, {"approved": decision} if isinstance(decision, bool) else decision]


def _find_misfit(values: Sequence[Any], schema: Mapping[str, Any]) -> str | None:
    """Return why no value matches the schema, or `None` if one does.

    An invalid schema is the agent's mistake: it is logged, and every value is accepted.
    """
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.exceptions import best_match
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    wrong = (SchemaError, Unresolvable, RecursionError, TypeError, ValueError, re.error)
    try:
        dialect: Any = validator_for(schema, default=Draft202012Validator)
        dialect.check_schema(schema)
        # an empty registry: otherwise a schema could make this server fetch any URL
        validator = limit_dialect(dialect, has_patterns=True)(schema, registry=Registry())
        try:
            found = (islice(validator.iter_errors(value), _MOST_ERRORS) for value in values)
            errors = [best_match(each) for each in found]
        except RecursionError:
            validator.is_valid(None)  # raises as well if the schema itself recurses endlessly
            return "$: it is nested too deeply."
    except wrong as error:
        logger.warning("The responseSchema of an interrupt cannot be used: %.300s", error)
        return None
    if None in errors:
        return None
    error = errors[0]
    text = f"{error.json_path}: {error.message}"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _was_refused(run: StoredRun) -> bool:
    """Return `True` if the agent rejected the answer before doing any work."""
    last = run.events[-1] if run.events else None
    return (
        isinstance(last, RunFailed)
        and last.error.code == Misuse.code
        and all(isinstance(event, _BEFORE_WORK) for event in run.events)
    )
