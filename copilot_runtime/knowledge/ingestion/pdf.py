"""Read PDF files, each in a process of its own that has little time and memory.

PDF is a language: a file can be made that keeps any parser busy for ever. As a program, this file
reads one from its standard input, and writes the title and the texts of the pages as JSON, or the
reason why there are none.
"""

import io
import logging
import subprocess
import sys
from importlib.util import find_spec

from copilot_runtime.errors import CopilotError, LimitExceeded, MissingPackage
from copilot_runtime.jsontext import dumps, loads

MOST_SECONDS = 120
MOST_MEMORY = 2 * 1024**3
MOST_PAGES = 5000


class UnreadableDocument(CopilotError):
    """A document cannot be read; the message says to its owner why."""

    code = "UNREADABLE_DOCUMENT"
    status_code = 422
    visibility = "banner"
    severity = "warning"


def read_pdf(data: bytes) -> tuple[str, list[str]]:
    """Return the title of a PDF and the texts of its pages.

    Raises `UnreadableDocument`, or `LimitExceeded` if it takes too long.
    """
    if find_spec("pypdf") is None:
        raise MissingPackage("Reading PDF files", "pypdf", "knowledge")
    try:
        done = subprocess.run(  # noqa: S603 - nothing of the command is the document's
            [sys.executable, "-I", "-c", _CODE, __file__, *sys.path],
            input=data,
            capture_output=True,
            timeout=MOST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LimitExceeded(f"Reading the PDF takes more than {MOST_SECONDS} seconds.") from error
    if done.returncode:
        raise UnreadableDocument(
            "The PDF cannot be read: it needs too much memory, or is damaged.",
            hint="Save it anew with another program, and try again.",
        )
    result = loads(done.stdout)
    if reason := result.get("reason"):
        raise UnreadableDocument(reason, hint=result.get("hint"))
    return result["title"], result["pages"]


_CODE = (
    "import runpy, sys; sys.path[:] = sys.argv[2:]; "
    "runpy.run_path(sys.argv[1], run_name='__main__')"
)
"""Runs this file alone, without what its packages import, on the path of this process."""


def main() -> None:
    """Read the standard input, within limits of memory."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    except (ImportError, ValueError, OSError):  # Windows has none, and others may allow less
        pass
    sys.stdout.buffer.write(dumps(extract_pages(sys.stdin.buffer.read())))


def extract_pages(data: bytes) -> dict[str, object]:
    """Return title and pages, or the reason why there are none, for people."""
    from pypdf import PdfReader

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            hint = "Save it without a password, and try again."
            return {"reason": "The PDF is encrypted.", "hint": hint}
        if len(reader.pages) > MOST_PAGES:
            return {"reason": f"The PDF has more than {MOST_PAGES} pages."}
        pages = [page.extract_text() for page in reader.pages]
        title = str((reader.metadata and reader.metadata.title) or "").strip()
    except Exception as error:  # of broken files, the parser raises whatever it stumbled over
        return {"reason": f"The PDF is damaged: {error}"}
    if not any(page.strip() for page in pages):
        return {
            "reason": "The PDF has no text: its pages are pictures, as a scanner makes them.",
            "hint": "Run text recognition (OCR) over it, and try again.",
        }
    return {"title": title, "pages": pages}


if __name__ == "__main__":
    main()
