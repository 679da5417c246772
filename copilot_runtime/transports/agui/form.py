"""A file in a form that a browser sends (`multipart/form-data`, RFC 7578)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

_MOST_PARTS = 100


@dataclass(frozen=True, slots=True)
class Upload:
    """A file; `mime_type` is as the browser wrote it, parameters included, or empty."""

    data: bytes
    filename: str
    mime_type: str


def file_in(content_type: str, body: bytes, name: str) -> Upload | None:
    """Return the first file in the field `name`. Raises `ValueError` for what is no form."""
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise ValueError("The form has no boundary.")
    reader = _Reader(name)
    try:
        parser = MultipartParser(boundary, reader.callbacks())
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise ValueError("The form cannot be read.") from error
    return reader.found


@dataclass(slots=True)
class _Reader:
    """Keeps the pieces of the file that is looked for, and of nothing else."""

    wanted: str
    found: Upload | None = None
    parts: int = 0
    taken: bool = False
    header: list[bytes] = field(default_factory=lambda: [b"", b""])
    headers: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    data: list[bytes] = field(default_factory=list[bytes])

    def callbacks(self) -> Any:
        return {
            "on_part_begin": self.begin,
            "on_header_field": self.piece_of_header(0),
            "on_header_value": self.piece_of_header(1),
            "on_header_end": self.end_header,
            "on_headers_finished": self.take,
            "on_part_data": self.piece_of_data,
            "on_part_end": self.end,
        }

    def begin(self) -> None:
        self.parts += 1
        if self.parts > _MOST_PARTS:
            raise ValueError(f"The form has more than {_MOST_PARTS} fields.")
        self.headers = {}
        self.taken = False

    def piece_of_header(self, at: int) -> Callable[[bytes, int, int], None]:
        def take(data: bytes, start: int, end: int) -> None:
            self.header[at] += data[start:end]

        return take

    def end_header(self) -> None:
        name, value = self.header
        self.headers[name.lower()] = value
        self.header = [b"", b""]

    def take(self) -> None:
        options = self.options()
        is_wanted = options.get(b"name") == self.wanted.encode()
        self.taken = is_wanted and b"filename" in options and self.found is None

    def piece_of_data(self, data: bytes, start: int, end: int) -> None:
        if self.taken:
            self.data.append(data[start:end])

    def end(self) -> None:
        if self.taken:
            filename = self.options()[b"filename"].decode(errors="replace")
            mime_type = self.headers.get(b"content-type", b"").decode("latin-1")
            self.found = Upload(b"".join(self.data), filename, mime_type.strip())

    def options(self) -> dict[bytes, bytes]:
        return parse_options_header(self.headers.get(b"content-disposition"))[1]
