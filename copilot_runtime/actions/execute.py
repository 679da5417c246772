"""Executes a call: validates arguments, applies the timeout, and returns a text for the model.

This is the only module that converts an action's failure into a result; the bytes of a failure are
those of the Node runtime.
"""

import asyncio
import inspect
import logging
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple, Self, cast

import orjson

from copilot_runtime.actions.schema import InvalidArguments
from copilot_runtime.api.action import Action, ActionContext
from copilot_runtime.api.run_input import wait_for_storage
from copilot_runtime.base.concurrency import CallResult, call, capture_result
from copilot_runtime.base.dataclass_copy import copy_with
from copilot_runtime.base.errors import CopilotError, LimitExceeded
from copilot_runtime.base.jsontext import loads, replace_surrogates
from copilot_runtime.base.jsonvalue import as_optional_text
from copilot_runtime.base.secrets import REDACTOR
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.content import render_text
from copilot_runtime.telemetry.genai import start_tool_span
from copilot_runtime.telemetry.span import Span, work_under

MAX_RESULT = 1024 * 1024
"""Maximum size of a result, in bytes."""

GRACE = 0.5
"""Seconds that a cancelled action has for its cleanup."""

_MAX_MESSAGE = 1000
_PARSE_MESSAGE = "Failed to parse action arguments"
_NOT_STORED = "The action was not done, because the call could not be saved."

_abandoned: set[asyncio.Task[CallResult]] = set()  # the loop itself holds tasks only weakly

logger = logging.getLogger(__name__)


class Outcome(NamedTuple):
    """The result text for the model, and the error, if any, for hooks and logs."""

    result: str
    error: BaseException | None = None

    @classmethod
    def failure(cls, code: str, message: str, error: BaseException | None = None) -> Self:
        """Return the outcome of a failed call."""
        message = _shorten(message)
        body = {"error": {"code": code, "message": message}, "result": ""}
        return cls(orjson.dumps(body).decode(), error or CopilotError(message))


def parse_failure(result: str) -> str | None:
    """Return the message of a failure, or None for the result of a call that succeeded."""
    if not result.startswith('{"error":{"code":'):
        return None
    try:
        body = orjson.loads(result)
    except ValueError:
        return None
    error = body.get("error")
    message = error.get("message") if isinstance(error, dict) else None
    return as_optional_text(message)


async def execute(
    action: Action,
    arguments: str,
    context: ActionContext,
    *,
    timeout: float,
) -> Outcome:
    """Run an action and return its outcome. Raises nothing but `CancelledError`.

    `timeout` is in seconds; the action's own timeout, if it has one, takes precedence.
    """
    if not context.span.is_recording:
        return await _execute(action, arguments, context, timeout)
    span = start_tool_span(
        context.span, action.name, call_id=context.call_id, description=action.description
    )
    if span.keeps_content:
        span.set_content({semconv.TOOL_CALL_ARGUMENTS: render_text(arguments)})
    try:
        with work_under(span):
            context = copy_with(context, span=span)
            outcome = await _execute(action, arguments, context, timeout)
        _describe_outcome(span, outcome)
        return outcome
    except asyncio.CancelledError:
        span.set_attributes({semconv.RUN_OUTCOME: "stopped"})
        raise
    finally:
        span.end()


def _describe_outcome(span: Span, outcome: Outcome) -> None:
    if outcome.error is not None:
        error_type = span.attributes.get(semconv.ERROR_TYPE)  # the action's own counts more
        span.fail(outcome.error)
        span.set_attributes({semconv.ERROR_TYPE: error_type})
    if span.keeps_content:
        span.set_content({semconv.TOOL_CALL_RESULT: render_text(outcome.result)})


async def _execute(
    action: Action, arguments: str, context: ActionContext, timeout: float
) -> Outcome:
    try:
        values = _parse_arguments(arguments)
    except InvalidArguments as error:
        return _build_argument_failure(action, error)
    # if this server is cut off, the server that takes over the thread must see the call
    stored = await capture_result(wait_for_storage())
    if stored.error is not None:
        return Outcome.failure("HANDLER_ERROR", _NOT_STORED, stored.error)
    limit = action.timeout or timeout
    task = asyncio.create_task(
        capture_result(_run(action, values, context)), name=f"run:{action.name}"
    )
    try:
        await asyncio.wait([task], timeout=limit)
    except asyncio.CancelledError:
        await _cancel(task, action.name)
        raise
    if not task.done():
        await _cancel(task, action.name)
        message = f"The action {action.name!r} did not finish within {limit:g} s."
        logger.warning("%s thread=%s run=%s", message, context.thread_id, context.run_id)
        return Outcome.failure("HANDLER_ERROR", message, TimeoutError(message))
    return _build_outcome(action, task)


def _parse_arguments(text: str) -> Mapping[str, Any]:
    """Parse the arguments; an empty text is an empty object."""
    if not text.strip():
        return {}
    try:
        values = loads(text.encode())
    except ValueError:
        raise InvalidArguments(_PARSE_MESSAGE) from None
    if values is None:  # what some models send for a call without arguments
        return {}
    if not isinstance(values, dict):
        kind = type(values).__name__
        raise InvalidArguments(f"{_PARSE_MESSAGE}: expected an object, got a {kind}")
    return cast("dict[str, Any]", values)


async def _run(action: Action, values: Mapping[str, Any], context: ActionContext) -> Any:
    if action.run is None:
        raise CopilotError(f"The action {action.name!r} runs in the browser, not here.")
    value = await call(action.run, values, context)
    if inspect.isasyncgen(value) or inspect.isgenerator(value):
        raise TypeError(f"{action.name} yields values; an action returns one.")
    return value


async def _cancel(task: "asyncio.Task[CallResult]", name: str) -> None:
    """Cancel an action and wait `GRACE` seconds. An action that does not end is abandoned."""
    task.cancel()
    _abandoned.add(task)
    task.add_done_callback(_abandoned.discard)
    await asyncio.wait([task], timeout=GRACE)
    if not task.done():
        logger.warning("The action %r does not end although it was cancelled.", name)


def _build_outcome(action: Action, task: "asyncio.Task[CallResult]") -> Outcome:
    if task.cancelled():  # by something inside the action: this call was not
        message = f"The action {action.name!r} was cancelled."
        return _build_handler_failure(action, CopilotError(message))
    value, error = task.result()
    if isinstance(error, InvalidArguments):
        return _build_argument_failure(action, error)
    if error is not None:
        return _build_handler_failure(action, error)
    try:
        text = serialize_result(value)
        check_size(text, action.name)
    except Exception as failure:  # a value's own methods may raise anything
        return _build_handler_failure(action, failure)
    return Outcome(text)


def check_size(result: str, name: str) -> None:
    """Raise `LimitExceeded` for a result of an action that is too large."""
    if (size := len(result.encode())) > MAX_RESULT:
        raise LimitExceeded(
            f"The result of {name!r} has {size} bytes; at most {MAX_RESULT} are taken. Ask "
            "for less."
        )


def _build_argument_failure(action: Action, error: InvalidArguments) -> Outcome:
    logger.warning("The call of %r has wrong arguments.", action.name)
    logger.debug("The arguments of %r: %s", action.name, error)
    return Outcome.failure("INVALID_ARGUMENTS", str(error), error)


def _build_handler_failure(action: Action, error: BaseException) -> Outcome:
    if isinstance(error, CopilotError):
        logger.warning("The action %r failed: %s (%s).", action.name, error.kind, error.code)
        # words of a tool, which may quote people and models
        logger.debug("The action %r said: %s %s", action.name, error.message, error.hint or "")
    else:
        logger.error("The action %r failed.", action.name, exc_info=error)
    return Outcome.failure("HANDLER_ERROR", describe_error(error), error)


def describe_error(error: BaseException) -> str:
    """Return the message of an error for the model."""
    if isinstance(error, CopilotError):
        return error.public or type(error).__name__
    try:
        return REDACTOR.redact(str(error)) or type(error).__name__
    except Exception:  # `__str__` of a third-party exception may raise
        return type(error).__name__


def _shorten(message: str) -> str:
    message = replace_surrogates(message)
    return message if len(message) <= _MAX_MESSAGE else message[: _MAX_MESSAGE - 1] + "…"


def serialize_result(value: Any) -> str:
    """Return the text for the model. Raises `TypeError` for a value without a JSON form."""
    if isinstance(value, str):
        return replace_surrogates(str.__str__(value))  # the text of a StrEnum, not its name
    return "" if value is None else replace_surrogates(_to_json(value))


def _to_json(value: Any) -> str:
    # encodes pydantic models, dataclasses, dates, sets, Decimal, and integers of any size, too
    from pydantic_core import PydanticSerializationError, to_json

    try:
        return to_json(_plain_bytes(value), inf_nan_mode="null", fallback=_fallback).decode()
    except PydanticSerializationError as error:
        if isinstance(value, dict | list | tuple | set | frozenset):
            cause = f"A value in the returned {type(value).__name__}"
        else:
            cause = f"The returned {type(value).__name__}"
        raise TypeError(f"{cause} cannot be written as JSON: {error}") from error


def _plain_bytes(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return b64encode(value).decode()
    return value


def _fallback(value: Any) -> Any:
    """Convert values of other packages by their `tolist` method (numpy, pandas)."""
    if callable(tolist := getattr(value, "tolist", None)):
        return tolist()
    raise TypeError(f"a {type(value).__qualname__} has no JSON form")
