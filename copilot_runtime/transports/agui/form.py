"""A file in a form that a browser sends (`multipart/form-data`, RFC 7578)."""

from dataclasses import dataclass

from python_multipart import FormParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import Field, File, parse_options_header

_MAX_PARTS = 100


@dataclass(frozen=True, slots=True)
class Upload:
    """A file; `mime_type` is as the browser wrote it, parameters included, or empty."""

    data: bytes
    filename: str
    mime_type: str


def parse_upload(content_type: str, body: bytes, name: str) -> Upload | None:
    """Return the first file in the field `name`. Raises `ValueError` for what is no form.

    The size of the body was limited before; a form may have 100 parts.
    """
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise ValueError("The form has no boundary.")
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
    return next(
        (
            _read(part)
            for part in parts
            if isinstance(part, File) and part.field_name == name.encode()
        ),
        None,
    )


def _read(file: File) -> Upload:
    file.file_object.seek(0)
    filename = (file.file_name or b"").decode(errors="replace")
    return Upload(file.file_object.read(), filename, (file.content_type or "").strip())
