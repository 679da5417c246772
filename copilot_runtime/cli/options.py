"""Shared command-line options, defined once as provider functions."""

from collections.abc import Callable
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

LOCAL_URL = "http://127.0.0.1:8000/graphql"
UrlOption = Annotated[
    str,
    typer.Option(
        "--url", envvar="COPILOT_URL", help="URL of the runtime, as in <CopilotKit runtimeUrl>."
    ),
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", help="Header of each request, as 'Name: value'."),
]
SIGN_IN_HINT = "Sign in with a header: -H 'Authorization: Bearer ...' or -H 'Cookie: session=…'."

Command = Callable[..., None]


class GlobCommand(TyperCommand):
    """A command whose repeatable options take all files of a glob that the shell has expanded."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat an option before each further file of the same kind."""
        names = {
            name
            for it in self.params
            if isinstance(it, TyperOption) and it.multiple
            for name in it.opts
        }
        words: list[str] = []
        for word in args:
            if words[-2:-1] and words[-2] in names and _are_alike(words[-1], word):
                words.append(words[-2])
            words.append(word)
        return super().parse_args(ctx, words)


def _are_alike(first: str, second: str) -> bool:
    """Return `True` if both are files with the same suffix."""
    files = Path(first), Path(second)
    return files[0].suffix == files[1].suffix and all(file.is_file() for file in files)


def with_options(**providers: Callable[..., Any]) -> Callable[[Command], Command]:
    """Add the options of `providers` to a command, each in place of the parameter of its name.

    The command receives the return value of the provider, which is called with the values of its
    own options. Providers are called in the order of these parameters.
    """

    def decorate(command: Command) -> Command:
        parameters: list[Parameter] = []
        options: dict[str, list[str]] = {}
        for parameter in signature(command).parameters.values():
            provider = providers.get(parameter.name)
            if provider is None:
                parameters.append(parameter)
                continue
            own = [*signature(provider).parameters.values()]
            parameters += own
            options[parameter.name] = [one.name for one in own]

        def run(**values: Any) -> None:
            for name, names in options.items():
                values[name] = providers[name](**{one: values.pop(one) for one in names})
            command(**values)

        # Typer reads the signature
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        parameters = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in parameters]
        setattr(run, "__signature__", signature(command).replace(parameters=parameters))  # noqa: B010
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate
