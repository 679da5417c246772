"""`knowledge/files`: a page sends a file before its question is asked, and gets it back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote

from copilot_runtime.base.errors import Misuse, NotFound
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.access import AccessDenied, Actor
from copilot_runtime.extensions.knowledge.policies import build_actor, conversation_identifier
from copilot_runtime.extensions.knowledge.policies.ownership import UPLOAD, check_conversation, owns
from copilot_runtime.extensions.knowledge.uploads.attachments import clean_name, write_address
from copilot_runtime.extensions.knowledge.uploads.queue import RETRY_AFTER, TooManyFiles
from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.form import parse_form
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import Refusal, error_body

if TYPE_CHECKING:
    from copilot_runtime.extensions.knowledge.uploads.uploads import Upload

_SANDBOX = "default-src 'none'; sandbox"
"""What a file may do that a browser opens all the same: nothing."""


@dataclass(frozen=True, slots=True)
class _NewFile:
    """A file as a page has sent it, and the thread that it is for."""

    data: bytes
    name: str
    thread_id: str


async def store_file(knowledge: Knowledge, request: Request) -> JsonObject:
    """Store the file of a request, and return it as the `onUpload` of CopilotKit does.

    Its text is read afterwards, in the background: the question waits for it. Raises `BadRequest`:
    400 for a request that cannot be read, 422 for a file that is refused; and `Refusal`, 429, for
    one that is to be sent again later.
    """
    if knowledge.settings.uploads == "off":
        raise NotFound("Files are not taken in here: the setting uploads is off.")
    file = await _read_request(request)
    user = request.caller.user
    job = knowledge.uploads.add(
        file.data,
        clean_name(file.name),
        conversation_identifier(user, file.thread_id),
        actor=build_actor(user, file.thread_id),
        thread=(user or "", file.thread_id),
    )
    try:
        upload = await job.wait_for_storage()
    except TooManyFiles as error:
        body = error_body("rate_limited", error.message, error.code)
        raise Refusal(error.status_code, body, {"retry-after": str(RETRY_AFTER)}) from error
    if upload.state == "refused":
        raise BadRequest(upload.message, 422, "FILE_REFUSED")
    return {
        "type": "url",
        "value": write_address(knowledge.link, upload.uri),
        "mimeType": upload.media_type,
        "metadata": {"filename": upload.name},
    }


async def load_file(knowledge: Knowledge, uri: str, reader: Actor) -> "tuple[Upload, bytes]":
    """Return a file as it came. Raises `AccessDenied` for all but its owner, and `NotFound`."""
    from copilot_runtime.extensions.knowledge.uploads.uploads import (
        decode_upload,  # loads pyoxigraph
    )

    if not owns(reader, uri):
        raise AccessDenied
    resource = await knowledge.get(uri, actor=reader)
    if resource is None or resource.id.type != UPLOAD:
        raise NotFound("There is no such file.")
    upload = decode_upload(resource)
    if (data := await knowledge.uploads.read(upload)) is None:
        raise NotFound("There is no such file any more.")
    return upload, data


def choose_media_type(upload: "Upload") -> str:
    """Return as what a file is sent: as nothing that a browser runs."""
    is_page = upload.media_type in ("", "text/html") or "xml" in upload.media_type
    return "application/octet-stream" if is_page else upload.media_type


def build_headers(upload: "Upload") -> Mapping[str, str]:
    """Return the headers of a file, which is to be saved and not opened."""
    plain = "".join(
        char if char.isascii() and char.isprintable() and char not in '"\\%' else "_"
        for char in upload.name
    )
    name = f"filename=\"{plain}\"; filename*=UTF-8''{quote(upload.name, safe='')}"
    return {"content-disposition": f"attachment; {name}", "content-security-policy": _SANDBOX}


async def _read_request(request: Request) -> _NewFile:
    """Read a form with the fields `file` and `threadId`, or a file alone as the body."""
    query = dict(parse_qsl(request.query_string, keep_blank_values=True))
    body = await request.body()
    thread_id, name = query.get("threadId", ""), query.get("name", "")
    if request.content_type == "multipart/form-data":
        try:
            form = parse_form(request.headers["content-type"], body)
        except ValueError as error:
            raise BadRequest(str(error)) from error
        if (file := form.files.get("file")) is None:
            raise BadRequest("The form has no file in the field 'file'.")
        body, name = file.data, name or file.filename
        thread_id = thread_id or form.texts.get("threadId", "")
    if not thread_id:
        raise BadRequest("Say for which thread the file is: knowledge/files?threadId=…")
    try:
        check_conversation(thread_id)
    except Misuse as error:
        raise BadRequest(error.message) from error
    return _NewFile(body, name, thread_id)
