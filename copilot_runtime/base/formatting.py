"""Format numbers, durations and text for terminals and logs."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

_MIDNIGHT = "T00:00:00"


def format_duration(seconds: float) -> str:
    """Return a duration as text: 850µs, 12ms, 2.31s, 3m05s, 2h10m."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f}µs"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 59.995:
        return f"{seconds:.2f}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def format_dollars(dollars: float, unpriced: int = 0) -> str:
    """Return a cost in US dollars, with a `+` if some requests have no known price."""
    if not dollars and unpriced:
        return "unpriced"
    more = "+" if unpriced else ""
    return f"${dollars:.4f}{more}" if dollars < 1 else f"${dollars:.2f}{more}"


def format_tokens(read: int, written: int) -> str:
    """Return input and output tokens as `1,204→88`, or an empty text if both are zero."""
    return f"{read:,}→{written:,}" if read or written else ""


def format_time(nanoseconds: int) -> str:
    """Return a Unix time in nanoseconds as ISO 8601 in UTC, with milliseconds."""
    try:
        moment = datetime.fromtimestamp(nanoseconds // 10**9, UTC)
    except (OverflowError, ValueError, OSError):  # out of the range of datetime
        return str(nanoseconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{nanoseconds // 10**6 % 1000:03}Z"


def format_count(count: int, word: str) -> str:
    """Return a count with its noun in singular or plural: 1 span, 1,204 spans."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def format_size(count: int) -> str:
    """Return a number of bytes in a readable unit."""
    return f"{count / 1024 / 1024:.3g} MB" if count >= 1024 * 1024 else f"{count:,} bytes"


def format_column(cells: Sequence[Any], width: int) -> Sequence[str]:
    """Return the cells of a table's column, each cut to `width` characters.

    Fractions have as many decimals, at most four, and days have no time.
    """
    fractions = [f"{cell:.4f}".rstrip("0") for cell in cells if isinstance(cell, float)]
    decimals = max((len(text.partition(".")[2]) for text in fractions), default=0)
    texts = [f"{it:,.{decimals}f}" if isinstance(it, float) else str(it) for it in cells]
    days = [text.removesuffix(_MIDNIGHT) for text in texts]
    if not any(it is not None and day == str(it) for it, day in zip(cells, days, strict=True)):
        texts = days
    texts = ["NULL" if it is None else text for it, text in zip(cells, texts, strict=True)]
    texts = [*map(clean_text, texts)]
    return [text if len(text) <= width else f"{text[: width - 1]}…" for text in texts]


def clean_text(text: str) -> str:
    """Replace control and other unprintable characters by spaces, for output in one line."""
    return "".join(char if char.isprintable() else " " for char in text)


def fit_text(text: str, width: int) -> str:
    """Truncate or pad a text to exactly `width` terminal columns."""
    from rich.text import Text  # for commands and pages of traces only

    fitted = Text(text)
    fitted.truncate(width, overflow="ellipsis", pad=True)
    return fitted.plain


def measure_text(text: str) -> int:
    """Return the width of a text in terminal columns; East Asian wide characters take two."""
    from rich.cells import cell_len

    return cell_len(text)
