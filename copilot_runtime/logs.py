"""How lines of the log look: with time, level and logger, as text or as JSON, on any server."""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_ORDINARY = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OURS = "copilot-runtime"
_FALLBACK = "copilot-runtime fallback"


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON, with what `extra` added to it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        extra = {name: value for name, value in vars(record).items() if name not in _ORDINARY}
        fields: dict[str, Any] = {
            **extra,
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _replace_halves(record.getMessage()),
        }
        if record.exc_info:
            fields["exception"] = _replace_halves(self.formatException(record.exc_info))
        try:
            return _dump(fields)
        except TypeError:  # half a character, a very large number, a tuple as a key
            return _dump({**fields, **{name: repr(value) for name, value in extra.items()}})


def build_formatter(log_format: str) -> logging.Formatter:
    """Return what writes lines in the format of the setting `log_format`."""
    return JsonFormatter() if log_format == "json" else logging.Formatter(_TEXT)


def configure_logs(level: str, log_format: str) -> None:
    """Log all that this process says to stderr, from a level on, and of packages less.

    Of the packages below, only warnings are logged, unless the level is `debug`. A second call
    changes what the first one has set.
    """
    handlers = [one for one in logging.root.handlers if one.name == _OURS]
    handler = handlers[0] if handlers else logging.StreamHandler()
    handler.name = _OURS
    handler.setFormatter(build_formatter(log_format))
    if handlers:
        logging.root.setLevel(level.upper())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if level != "debug":
        for name in ("uvicorn", "mcp"):
            logging.getLogger(name).setLevel(max(logging.WARNING, logging.root.level))


def add_fallback_handler(level: str, log_format: str) -> None:
    """Let our own lines be written as set, where the server has configured no log for them.

    Python writes warnings without time and level there, and nothing else. As soon as the
    application configures a log, only that one is used.
    """
    package = logging.getLogger(__name__.partition(".")[0])
    for handler in package.handlers:
        if handler.name == _FALLBACK:
            package.removeHandler(handler)
    if package.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.name = _FALLBACK
    handler.setFormatter(build_formatter(log_format))
    handler.setLevel(level.upper())
    handler.addFilter(lambda _: not logging.root.handlers)
    package.addHandler(handler)
    if package.level == logging.NOTSET:
        package.setLevel(level.upper())


def _dump(fields: Mapping[str, Any]) -> str:
    return orjson.dumps(fields, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()


def _replace_halves(text: str) -> str:
    """Return a text that can be written: half a character becomes a question mark."""
    return text.encode(errors="replace").decode()
