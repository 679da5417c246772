"""Log configuration: text or JSON lines with time, level, logger and the ids of the run.

A level and a list of namespaces select the lines, as the variable `DEBUG` of Node programs does:
`threads:*` enables the level debug for `copilot_runtime.threads` and its child loggers.
"""

import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar, Token
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

from copilot_runtime.base.jsontext import escape_json_controls
from copilot_runtime.base.secrets import REDACTOR
from copilot_runtime.telemetry.span import Span, find_current_span

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
RUN_FIELDS = ("trace_id", "span_id", "thread_id", "run_id")
"""Fields of each log line of a run. Identifiers only: the user is not among them."""

_ORDINARY = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_TERMINAL_FIELDS = frozenset({"color_message"})
"""Attributes that uvicorn adds to its log records for terminals."""
_OURS = "copilot-runtime"
_FALLBACK = "copilot-runtime fallback"
_PACKAGE = __name__.partition(".")[0]
_LONGEST_ID = 200
_LIBRARIES = (
    *("aiohttp", "anthropic", "asyncpg", "boto3", "botocore", "dbos", "duckdb", "google"),
    *("grpc", "h2", "hpack", "httpcore", "httpcore2", "httpx", "httpx2", "langchain", "langgraph"),
    *("langsmith", "mcp", "openai", "redis", "s3transfer", "urllib3", "uvicorn", "websockets"),
)
"""Loggers of third-party packages, which write whole requests at the level info or debug."""

_fields: ContextVar[Mapping[str, str]] = ContextVar("copilot_runtime.log_fields")


def set_log_fields(fields: Mapping[str, str]) -> None:
    """Set `RUN_FIELDS` for all further log lines of the current context.

    Use it in a task or context of its own; elsewhere use `swap_log_fields`, which can be reset.
    """
    _fields.set(fields)


def swap_log_fields(fields: Mapping[str, str]) -> Token[Mapping[str, str]]:
    """Set `RUN_FIELDS` for log lines of the current context; return the token for the reset."""
    return _fields.set(fields)


def reset_log_fields(token: Token[Mapping[str, str]]) -> None:
    """Restore the fields that the current context had before `swap_log_fields`."""
    _fields.reset(token)


def build_run_fields(thread_id: str, run_id: str, span: Span) -> dict[str, str]:
    """Return all `RUN_FIELDS` for a run and its span; ids of a missing span are empty.

    Passed as `extra` of a log call, they replace the fields of the current context.
    """
    ids = (span.trace_id, span.span_id) if span.is_recording else ("", "")
    values = (*ids, thread_id[:_LONGEST_ID], run_id[:_LONGEST_ID])
    return dict(zip(RUN_FIELDS, values, strict=True))


def find_run_fields() -> dict[str, str]:
    """Return the ids of the current run and span; empty outside of a run."""
    found = dict(_fields.get({}))
    span = find_current_span()
    if span.is_recording:
        found |= {"trace_id": span.trace_id, "span_id": span.span_id}
    return found


class RunFilter(logging.Filter):
    """A filter that adds `RUN_FIELDS` to log records, for custom handlers and formats.

    The fields are empty outside of a run, so that a format such as `%(run_id)s` always works.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields and accept the record."""
        found = find_run_fields()
        for name in RUN_FIELDS:
            if not hasattr(record, name):
                setattr(record, name, found.get(name, "")[:_LONGEST_ID])
        return True


class TextFormatter(logging.Formatter):
    """Formats a record as one line, with its fields after the message: `[run_id="r1"]`.

    Control characters and quotes are escaped, so that no message or value can end the line or
    imitate a field. The traceback of an exception follows on separate lines.
    """

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        """Return the line."""
        record.message = escape_controls(record.message)
        fields = format_fields(_fields_of(record))
        return (
            f"{super().formatMessage(record)} {fields}" if fields else super().formatMessage(record)
        )


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON, including the fields of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        extra = _fields_of(record)
        fields: dict[str, Any] = {
            **extra,
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _replace_halves(record.getMessage()),
        }
        if record.exc_info:
            text = record.exc_text or self.formatException(record.exc_info)
            fields["exception"] = _replace_halves(text)
        try:
            return _dump(fields)
        except TypeError:  # half a character, a very large number, a tuple as a key
            return _dump({**fields, **{name: repr(value) for name, value in extra.items()}})


def build_formatter(log_format: str) -> logging.Formatter:
    """Return the formatter for a value of the setting `log_format`."""
    return JsonFormatter() if log_format == "json" else TextFormatter()


def configure_logs(level: str, log_format: str, namespaces: Iterable[str] = ()) -> None:
    """Configure the root logger to write to stderr from a level on; third-party packages log less.

    Third-party packages log warnings only, unless the level is `debug`. The `namespaces` log at
    level debug in any case. A second call replaces the configuration of the first one.
    """
    redact_records()
    handlers = [one for one in logging.root.handlers if one.name == _OURS]
    handler = handlers[0] if handlers else logging.StreamHandler()
    handler.name = _OURS
    handler.setFormatter(build_formatter(log_format))
    if handlers:
        logging.root.setLevel(level.upper())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if level != "debug":
        for name in _LIBRARIES:
            logging.getLogger(name).setLevel(max(logging.WARNING, logging.root.level))
    _open_namespaces(handler, logging.root.level, namespaces, is_own_process=True)


class _RecordFactory:
    """A factory of log records without secrets, whichever handler of the process writes them."""

    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        self._make = make

    def __call__(self, *args: Any, **fields: Any) -> logging.LogRecord:
        record = self._make(*args, **fields)
        with suppress(Exception):  # arguments that do not fit the message: the handler says so
            _redact_record(record)
        return record


def redact_records() -> None:
    """Redact the message and the traceback of all further log records of this process."""
    if not isinstance(make := logging.getLogRecordFactory(), _RecordFactory):
        logging.setLogRecordFactory(_RecordFactory(make))


def _redact_record(record: logging.LogRecord) -> None:
    message = record.getMessage()
    clean = REDACTOR.redact(message)
    if clean != message:
        if isinstance(record.args, tuple):  # the formatter of uvicorn reads these
            record.args = tuple(
                REDACTOR.redact(one) if isinstance(one, str) else one for one in record.args
            )
        if record.getMessage() != clean:
            record.msg, record.args = clean, ()
    if record.exc_info and record.exc_info[0] is not None:
        trace = logging.Formatter().formatException(record.exc_info)
        if (clean := REDACTOR.redact(trace)) != trace:
            record.exc_text = clean


def is_json_log() -> bool:
    """Return True if `configure_logs` selected JSON: then nothing else may be printed."""
    ours = [one for one in logging.root.handlers if one.name == _OURS]
    return any(isinstance(handler.formatter, JsonFormatter) for handler in ours)


def add_fallback_handler(level: str, log_format: str, namespaces: Iterable[str] = ()) -> None:
    """Add a handler for our own log records, used while the application configures none.

    Python's last-resort handler would print warnings only, without time and level. As soon as
    the application adds a handler, this one writes nothing.
    """
    redact_records()
    package = logging.getLogger(_PACKAGE)
    for handler in package.handlers:
        if handler.name == _FALLBACK:
            _close_namespaces(handler)
            package.removeHandler(handler)
    if package.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.name = _FALLBACK
    handler.setFormatter(build_formatter(log_format))
    handler.addFilter(lambda _: not logging.root.handlers)
    package.addHandler(handler)
    if package.level == logging.NOTSET:
        package.setLevel(level.upper())
    _open_namespaces(handler, logging.getLevelNamesMapping()[level.upper()], namespaces)


def is_debug_enabled(domain: str, debug: str | Iterable[str]) -> bool:
    """Return True if a namespace list enables a domain, by its name or a prefix before `*`.

    `agent` is not `agent:memory`, and `agent:*` is not `agent`.
    """
    patterns = debug.split(",") if isinstance(debug, str) else debug
    return any(
        domain.startswith(pattern[:-1]) if pattern.endswith("*") else domain == pattern
        for pattern in map(str.strip, patterns)
    )


class _NamespaceFilter(logging.Filter):
    """A filter that accepts records from a level on, and all records of some namespaces."""

    def __init__(self, level: int, namespaces: Iterable[str], loggers: Iterable[str]) -> None:
        super().__init__()
        self.level = level
        self.loggers = [*loggers]
        """Names of the loggers that were set to level debug; the empty name is the root logger."""
        self._namespaces = [*namespaces]

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= self.level:
            return True
        domain = record.name.removeprefix(f"{_PACKAGE}.").replace(".", ":")
        return any(is_debug_enabled(name, self._namespaces) for name in (record.name, domain))


def _open_namespaces(
    handler: logging.Handler, level: int, namespaces: Iterable[str], *, is_own_process: bool = False
) -> None:
    """Set the loggers of namespaces to level debug, and make the handler accept their records.

    In the process of a host application, only loggers of this package are changed.
    """
    _close_namespaces(handler)
    namespaces = [*namespaces]
    if not namespaces:
        return
    names = {name for pattern in namespaces for name in _list_loggers(pattern.strip())}
    if not is_own_process:
        names = {name for name in names if name.split(".")[0] == _PACKAGE}
    for name in names:
        logging.getLogger(name).setLevel(logging.DEBUG)
    handler.addFilter(_NamespaceFilter(level, namespaces, names))


def _close_namespaces(handler: logging.Handler) -> None:
    for former in [one for one in handler.filters if isinstance(one, _NamespaceFilter)]:
        handler.removeFilter(former)
        for name in former.loggers:
            logging.getLogger(name).setLevel(logging.NOTSET if name else former.level)


def _list_loggers(pattern: str) -> Iterable[str]:
    """Return the names of the topmost loggers that a namespace pattern may match."""
    stem = pattern.removesuffix("*").replace(":", ".")
    if not pattern:
        return ()
    is_part_of_name = stem != pattern.replace(":", ".") and not stem.endswith(".")
    name = stem.rpartition(".")[0] if is_part_of_name else stem.rstrip(".")
    return (name, f"{_PACKAGE}.{name}".rstrip("."))


class DomainLogger:
    """A logger that writes lines in the format of Copilot-LD, for tools that parse it.

    `LEVEL TIME DOMAIN APP PID MSG001 [key="value" …] message`, with `-` if there are no fields;
    the message number counts the lines of this logger. Debug lines are written if `debug`, a
    value of the variable `DEBUG`, enables the domain.
    """

    def __init__(
        self,
        domain: str,
        *,
        debug: str = "",
        pid: int | None = None,
        write: Callable[[str], Any] | None = None,
    ) -> None:
        self.domain = domain
        self.is_enabled = is_debug_enabled(domain, debug)
        self._pid = os.getpid() if pid is None else pid
        self._write = write or _write_line
        self._count = 0

    def debug(self, app: str, message: str, fields: Mapping[str, Any] | None = None) -> None:
        """Write a line of level debug, if that is enabled for the domain."""
        if self.is_enabled:
            self._log("DEBUG", app, message, fields)

    def info(self, app: str, message: str, fields: Mapping[str, Any] | None = None) -> None:
        """Write a line of level info."""
        self._log("INFO", app, message, fields)

    def error(
        self, app: str, error: BaseException | str, fields: Mapping[str, Any] | None = None
    ) -> None:
        """Write a line of level error; an exception's traceback is a field."""
        names = ("trace_id", "span_id", "service_name")
        trace = {name: value for name in names if (value := getattr(error, name, None))}
        self._log("ERROR", app, str(error), {**trace, **(fields or {})})

    def _log(
        self,
        level: Literal["DEBUG", "INFO", "ERROR"],
        app: str,
        message: str,
        fields: Mapping[str, Any] | None,
    ) -> None:
        self._count += 1
        time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._write(
            f"{level} {time} {self.domain} {app or '-'} {self._pid or '-'} "
            f"MSG{self._count:03} {format_fields(REDACTOR.redact_all(fields or {})) or '-'} "
            f"{escape_controls(REDACTOR.redact(message)) or '-'}"
        )


def _write_line(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def format_fields(fields: Mapping[str, Any]) -> str:
    """Return fields as structured data of RFC 5424, `[key="value" …]`; empty if there are none."""
    pairs = [f'{_NO_KEY.sub("_", name)}="{_escape(str(value))}"' for name, value in fields.items()]
    return f"[{' '.join(pairs)}]" if pairs else ""


def escape_controls(text: str) -> str:
    """Return a text with line breaks and terminal control characters escaped."""
    text = text.encode(errors="backslashreplace").decode()  # half a character cannot be written
    return _CONTROL.sub(_escape_control, text)


_NO_KEY = re.compile(r"[^\w.@-]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def _escape_control(match: re.Match[str]) -> str:
    character = match[0]
    return _SHORT.get(character) or f"\\u{ord(character):04x}"


def _escape(value: str) -> str:
    for special in ("\\", '"', "]"):
        value = value.replace(special, f"\\{special}")
    return escape_controls(value)


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of a record: those of the run, and those of `extra`."""
    RunFilter().filter(record)
    extra = {
        name: REDACTOR.redact_all(value)
        for name, value in vars(record).items()
        if name not in _ORDINARY and name not in RUN_FIELDS and name not in _TERMINAL_FIELDS
    }
    run = {name: value for name in RUN_FIELDS if (value := getattr(record, name))}
    return {**run, **extra}


def _dump(fields: Mapping[str, Any]) -> str:
    data = orjson.dumps(fields, default=repr, option=orjson.OPT_NON_STR_KEYS)
    return escape_json_controls(data).decode()


def _replace_halves(text: str) -> str:
    """Return a text that UTF-8 can encode: lone surrogates become question marks."""
    return text.encode(errors="replace").decode()
