"""Shared command-line options, defined once as provider functions."""

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Annotated, Any

import typer

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

Command = Callable[..., None]


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
