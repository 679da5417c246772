"""Reads error bodies: the sentence, the codes and the time to wait, in any of the usual forms."""

import re
from html import unescape
from typing import Any

from copilot_runtime.base.jsontext import loads
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    as_list,
    as_object,
    as_objects,
    get_object,
    get_text,
    parse_text,
    to_text,
)
from copilot_runtime.http.errors import parse_retry_after

_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s")
_RETRY = re.compile(
    r"(?:try again|retry)\s+(?:in|after)\s+"
    r"(?:(?P<h>\d+)h)?(?:(?P<m>\d+) ?m(?:in(?:ute)?s?)?(?!s))?"
    r"(?:(?P<s>\d*\.?\d+) ?(?P<unit>ms|s))?",
    re.IGNORECASE,
)
"""How OpenAI, Azure, Groq and Google say when to ask again: `in 20s`, `in 7m12.5s`, `in 350ms`."""
_TITLE = re.compile(r"<title[^<>]*>([^<]*)</title>", re.IGNORECASE)
_TAG = re.compile(r"<(script|style)\b.*?(?:</\1>|\Z)|<[^<>]*>", re.DOTALL | re.IGNORECASE)
_LONGEST = 500


def find_error(value: Any) -> Any:
    """Return the error in a payload or body, in any of the usual forms; `None` if there is none.

    It is the value of `error`, a whole object that is marked as an error, or one that has a message
    and nothing of an answer.
    """
    fields = as_object(_unwrap(value))
    if error := fields.get("error"):
        return error if isinstance(error, dict) else fields
    if "error" in (fields.get("object"), fields.get("type"), fields.get("status")):
        return fields
    for choice in as_objects(fields.get("choices")):
        if error := choice.get("error"):
            return error
    if errors := as_list(fields.get("errors")):  # Cloudflare
        return errors
    if fields.get("error_message") and not fields.get("choices"):  # DeepInfra
        return fields
    if base := get_object(fields, "base_resp"):  # MiniMax, with every answer
        return base if base.get("status_code") else None
    is_bare = "type" not in fields or "code" in fields or str(fields["type"]).endswith("error")
    if is_bare and _ANSWERS.isdisjoint(fields) and any(fields.get(key) for key in _MESSAGES):
        return fields
    return None


_ANSWERS = frozenset({"candidates", "choices", "content", "delta", "object", "response"})
_MESSAGES = (
    *("message", "Message", "detail", "msg", "status_msg", "error_msg", "error_message"),
    *("errorMessage", "fault", "faultstring"),
)


def read_error_message(body: bytes) -> str:
    """Return the message in an error body: JSON of any of the usual shapes, text, or HTML."""
    if (value := decode_body(body)) is not None:
        return shorten(read_sentence(value))
    text = body[: 64 * _LONGEST].decode(errors="replace")
    title = _TITLE.search(text)
    return shorten(unescape(title[1]) if title else _TAG.sub(" ", text))


def decode_body(body: bytes) -> Any:
    """Return the JSON of a body; `None` if it is none."""
    try:
        return loads(body)
    except ValueError:
        return None


_CODES = (
    *("status", "statusCode", "status_code", "code", "errorCode", "error_code"),
    *("error_type", "type", "__type"),
)


def read_codes(value: Any) -> list[Any]:
    """Return all values in an error that may be a code."""
    fields = as_object(_unwrap(value))
    own = [fields[key] for key in _CODES if fields.get(key)]
    inner = [
        code
        for key in ("innererror", "error", "details")
        if key in fields
        for code in read_codes(fields[key])
    ]
    reasons = [detail["reason"] for detail in _details(fields) if "reason" in detail]
    return [*own, *inner, *reasons]


def find_retry_delay(value: Any, reason: str) -> float | None:
    """Return the seconds to wait by an error's fields or by its sentence; None if it has none."""
    fields = as_object(_unwrap(value))
    fields = get_object(fields, "error") or fields
    for detail in _details(fields):
        if found := _SECONDS.fullmatch(str(detail.get("retryDelay"))):
            return float(found[1])
    for key in ("retry_after", "retryAfter"):
        if isinstance(seconds := fields.get(key), int | float) and seconds > 0:
            return float(seconds)
    headers = get_object(fields, "metadata", "headers")  # of the provider behind OpenRouter
    if delay := parse_retry_after({name.lower(): str(one) for name, one in headers.items()}):
        return delay
    if (found := _RETRY.search(reason)) is None or not any(found.group("h", "m", "s")):
        return None
    rest = float(found["s"] or 0) / (1000 if (found["unit"] or "").lower() == "ms" else 1)
    return 3600 * int(found["h"] or 0) + 60 * int(found["m"] or 0) + rest


def _details(error: JsonObject) -> list[JsonObject]:
    """Return the objects of Google's list of details (https://cloud.google.com/apis/design/errors)."""
    return as_objects(error.get("details"))


def _unwrap(value: Any) -> Any:
    """Return the first item of a list, and anything else as it is."""
    while items := as_list(value):
        value = items[0]
    return value


def read_sentence(value: Any) -> str:
    """Return the message in an error, whose values may contain it; its JSON if it has none."""
    if faults := [one for one in as_objects(value) if as_list(one.get("loc"))]:  # FastAPI
        return "; ".join(
            ".".join(map(str, one["loc"])) + f": {get_text(one, 'msg')}" for one in faults
        )
    value = _unwrap(value)
    fields = as_object(value)
    error, message = fields.get("error"), fields.get("message") or fields.get("error_description")
    if isinstance(error, str) and isinstance(message, str) and message:
        return message if error in message else f"{error}: {message}"  # Fastify, NestJS, OAuth
    for key in ("error", *_MESSAGES):
        if isinstance(fields.get(key), str | list | dict) and fields[key]:
            return _add_cause(read_sentence(fields[key]), fields)
    return to_text(value) if value else ""


def _add_cause(sentence: str, fields: JsonObject) -> str:
    """Return the sentence of a gateway with that of the provider behind it."""
    # https://openrouter.ai/docs/api/reference/errors-and-debugging (provider errors), Bedrock's
    # https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ModelStreamErrorException.html
    raw = get_object(fields, "metadata").get("raw") or fields.get("originalMessage")
    cause = read_sentence(parse_text(raw)) if raw else ""
    return f"{sentence.rstrip('.')}: {cause}" if cause and cause not in sentence else sentence


def shorten(text: str) -> str:
    """Return a text in one line of at most 500 characters."""
    text = " ".join(text.split())
    # three dots: react-core 1.10.6 calls btoa on messages, which throws beyond Latin-1
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
