"""Parse forms with files (`multipart/form-data`, RFC 7578)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from python_multipart import FormParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import Field, File, parse_options_header

_MAX_PARTS = 100
"""Maximum number of fields of a form."""


@dataclass(frozen=True, slots=True)
class FormFile:
    """A file of a form. `mime_type` is as sent by the browser, with parameters, or empty."""

    data: bytes
    filename: str
    mime_type: str


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a form: the first text and the first file of each name."""

    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, FormFile] = field(default_factory=dict[str, FormFile])


def parse_form(content_type: str, body: bytes) -> Form:
    """Parse a form. Raises `ValueError` if it is malformed.

    The caller limits the size of the body; a form may have 100 parts.
    """
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise ValueError("The form has no boundary.")
    texts: dict[str, str] = {}
    files: dict[str, FormFile] = {}
    parts: list[Field | File] = []

    def add(part: Field | File | None) -> None:
        if part is not None:
            parts.append(part)
        if len(parts) > _MAX_PARTS:
            raise ValueError(f"The form has more than {_MAX_PARTS} fields.")

    in_memory = {"MAX_MEMORY_FILE_SIZE": len(body)}
    parser = FormParser("multipart/form-data", add, add, boundary=boundary, config=in_memory)
    try:
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise ValueError("The form cannot be read.") from error
    for part in parts:
        name = (part.field_name or b"").decode(errors="replace")
        if isinstance(part, File):
            files.setdefault(name, _read(part))
        else:
            texts.setdefault(name, (part.value or b"").decode(errors="replace"))
    return Form(texts, files)


def _read(file: File) -> FormFile:
    file.file_object.seek(0)
    filename = (file.file_name or b"").decode(errors="replace")
    return FormFile(file.file_object.read(), filename, (file.content_type or "").strip())
