"""What the commands of the package print."""

from typer.testing import Result


def read_messages(result: Result) -> str:
    """Return what a command says on stderr behind its first line, which names its settings."""
    first, _, rest = result.stderr.partition("\n")
    assert first.startswith("Settings: "), first
    return rest
