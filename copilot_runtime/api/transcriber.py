"""The interface of a speech-to-text service."""

from typing import Protocol


class Transcriber(Protocol):
    """A speech-to-text service.

    A transcriber may also have `async aclose()`, which is awaited at the server's shutdown.
    """

    async def transcribe(self, audio: bytes, filename: str, mime_type: str) -> str:
        """Return the text of a recording. Raises `AudioRefused`, or another `CopilotError`."""
        ...
