"""Environment variables of Copilot-LD that configure the storage of knowledge."""

from collections.abc import Iterator, Mapping
from typing import Any

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config.section import Override, SectionVariables


def read_storage(section: Mapping[str, Any], environ: Mapping[str, str]) -> Iterator[Override]:
    """Yield the override of `knowledge.storage`, if the settings leave it open."""
    if storage := _find_storage(section, environ):
        yield Override("storage", storage, "STORAGE_TYPE")


def _find_storage(section: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """Return the storage that the variables of Copilot-LD name, or an empty text.

    These names are not ours alone. So they only say where knowledge is, and a bucket that is named
    has some; `STORAGE_TYPE=local` in the environment of another program changes nothing.
    """
    kind = environ.get("STORAGE_TYPE", "")
    bucket = environ.get("S3_BUCKET") or environ.get("S3_BUCKET_NAME", "")
    if section.get("storage"):
        return ""
    if kind == "s3" and bucket:
        region = environ.get("S3_REGION", "")
        return f"s3://{bucket}?region={region}" if region else f"s3://{bucket}"
    if not kind or not section.get("sources"):
        return ""
    if kind not in ("local", "memory"):
        wrong = "S3_BUCKET is not set" if kind == "s3" else "there are local, memory and s3"
        raise ConfigurationFailed(
            f"The environment variable STORAGE_TYPE is {kind!r}, but {wrong}.",
            hint="Set knowledge.storage in copilot.yml, such as s3://bucket/prefix.",
        )
    return "memory" if kind == "memory" else ""


KNOWLEDGE = SectionVariables(section="knowledge", read_after=read_storage)
