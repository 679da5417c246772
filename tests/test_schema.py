"""The schema at the root of the repository is the one that is served."""

from pathlib import Path

from copilot_runtime.transports.graphql.schema import sdl


def test_the_schema_file_is_up_to_date() -> None:
    kept = Path(__file__).parent.parent / "schema.graphql"

    assert kept.read_text(encoding="utf-8") == sdl(), (
        "write it anew: copilot-runtime schema > schema.graphql"
    )
