"""What the commands of the package print."""

from typer.testing import Result


def read_messages(result: Result) -> str:
    """Return what a command says on stderr, without the notice that there is no settings file."""
    first, end, rest = result.stderr.partition("\n")
    return rest if first.startswith("There is no copilot.yml here") else f"{first}{end}{rest}"
