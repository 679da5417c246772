"""Numbers, times and texts as people read them in a terminal or a log."""

from datetime import UTC, datetime
from unicodedata import combining, east_asian_width


def format_duration(seconds: float) -> str:
    """Return a time as people read it: 850µs, 12ms, 2.31s, 3m05s, 2h10m."""
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
    """Return a cost, with a `+` where requests without a known price come on top."""
    if not dollars and unpriced:
        return "unpriced"
    more = "+" if unpriced else ""
    return f"${dollars:.4f}{more}" if dollars < 1 else f"${dollars:.2f}{more}"


def format_tokens(read: int, written: int) -> str:
    """Return how many tokens were read and written; nothing for none."""
    return f"{read:,}→{written:,}" if read or written else ""


def format_time(nanoseconds: int) -> str:
    """Return a time by ISO 8601, in UTC, to the millisecond."""
    try:
        moment = datetime.fromtimestamp(nanoseconds // 10**9, UTC)
    except (OverflowError, ValueError, OSError):  # no calendar has it
        return str(nanoseconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{nanoseconds // 10**6 % 1000:03}Z"


def count_words(count: int, word: str) -> str:
    """Return a number with what it counts: 1 span, 1,204 spans."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def clean_text(text: str) -> str:
    """Return a text in one line, without what could command a terminal."""
    return "".join(char if char.isprintable() else " " for char in text)


def fit_text(text: str, width: int) -> str:
    """Return a text that is exactly so many columns wide: cut, or filled with spaces."""
    size = measure_text(text)
    if size <= width:
        return text + " " * (width - size)
    cut: list[str] = []
    room = width - 1
    for char in text:
        room -= measure_text(char)
        if room < 0:
            break
        cut.append(char)
    return fit_text("".join(cut) + "…", width)


def measure_text(text: str) -> int:
    """Return how many columns of a terminal a text takes: a Chinese character takes two."""
    if text.isascii():
        return len(text)
    return sum(
        0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text
    )
