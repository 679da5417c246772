"""Attachments as Gemini wants them: with their content, or by the address of a file.

https://ai.google.dev/gemini-api/docs/file-input-methods. Any address is passed on: which ones it
reads (its own files, `gs://`, YouTube, the web) depends on the model and on who is asked.
"""

from copilot_runtime.adapters.media import Media, decode_text
from copilot_runtime.jsonvalue import JsonObject

_FILES = "https://generativelanguage.googleapis.com/v1beta/files/"
_USUAL = {
    "image": "image/png",
    "audio": "audio/wav",
    "video": "video/mp4",
    "document": "application/pdf",
}


def build_media(media: Media) -> JsonObject | str:
    """Return the part, or why there is none."""
    if media.url or media.id:
        file = {"fileUri": media.url or _uri(media.id)}
        if media.mime_type:
            file["mimeType"] = media.mime_type
        return {"fileData": file}
    if media.kind == "document":
        if (text := decode_text(media)) is not None:  # every model can read it
            return {"text": f"{media.filename or 'Attached document'}:\n\n{text}"}
        if media.mime_type not in ("", "application/pdf"):
            return f"Gemini takes documents as PDF or as text, not as {media.mime_type}"
    mime_type = media.mime_type or _USUAL[media.kind]
    return {"inlineData": {"mimeType": mime_type, "data": media.data}}


def _uri(id: str) -> str:
    """Return the address of a file that was sent to Google before."""
    return id if "://" in id else f"{_FILES}{id.removeprefix('files/')}"
