"""The startup message of `serve`: plain text, or a JSON log record."""

import logging

import typer

from copilot_runtime.telemetry.logs import is_json_log

logger = logging.getLogger(__name__)


def show_banner(text: str) -> None:
    """Print lines, or log them as one record if all output is JSON."""
    if is_json_log():
        logger.info("%s", "; ".join(line.strip() for line in text.splitlines() if line))
    else:
        typer.echo(text)
