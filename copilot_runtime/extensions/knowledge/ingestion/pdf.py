"""Extract the text of PDF files inside the sandbox, since parsing untrusted PDF is slow and risky.

The module imports little, since each file is read in a new process.
"""

import io
import logging

from copilot_runtime.base.errors import CopilotError, LimitExceeded

MOST_PAGES = 5000
MOST_CHARACTERS = 16 * 1024 * 1024


def extract_pages(data: bytes) -> dict[str, object]:
    """Return the title of a PDF and the texts of its pages. Raises `CopilotError`."""
    from pypdf import PdfReader

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise CopilotError(
                "The PDF is encrypted.", hint="Save it without a password, and try again."
            )
        if len(reader.pages) > MOST_PAGES:
            raise LimitExceeded(f"The PDF has more than {MOST_PAGES} pages.")
        pages: list[str] = []
        left = MOST_CHARACTERS
        for page in reader.pages:
            pages.append(page.extract_text())
            left -= len(pages[-1])
            if left < 0:
                raise LimitExceeded(f"The PDF has more than {MOST_CHARACTERS:,} characters.")
        title = str((reader.metadata and reader.metadata.title) or "").strip()
    except CopilotError:
        raise
    except Exception as error:  # of broken files, the parser raises whatever it stumbled over
        raise CopilotError(f"The PDF is damaged: {error}") from error
    if not any(page.strip() for page in pages):
        raise CopilotError(
            "The PDF has no text: its pages are pictures, as a scanner makes them.",
            hint="Run text recognition (OCR) over it, and try again.",
        )
    return {"title": title, "pages": pages}
