"""The section of the settings for what is written down of who did what."""

from typing import Annotated

from pydantic import AfterValidator, Field

from copilot_runtime.config.secret_checks import check_key
from copilot_runtime.config.section import Section


class AuditSettings(Section):
    """What is written down of who did what."""

    file: str = Field(
        default="",
        description="File of the audit log, such as .copilot/audit.jsonl. Empty: none is written.",
    )
    reads: bool = Field(
        default=False, description="Whether what was only read is written down as well."
    )
    content: bool = Field(
        default=False, description="Whether questions are written down with their text."
    )
    key: Annotated[str, AfterValidator(check_key)] = Field(
        default="",
        description="Key of the hashes that chain the lines, 32 bytes or more: without it, whoever "
        "may write the file may write it anew.",
        repr=False,
    )
    max_bytes: Annotated[int, Field(ge=4096)] = Field(
        default=50 * 1024 * 1024, description="Size at which the next file is begun."
    )
    max_files: Annotated[int, Field(ge=1)] = Field(
        default=20, description="Files that are kept; the oldest one is deleted."
    )
