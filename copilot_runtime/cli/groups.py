"""The tree of commands: those of a day's work first, the others in groups."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperGroup

from copilot_runtime.extensions import GROUPS

_ORDER = (
    *("new", "serve", "chat", "test", "doctor", "settings"),
    *("knowledge", "analyst", "plans", "traces", "operate", "develop"),
)
"""The names in the order of the help. Those of plugins follow."""
_RENAMED = {"plan": "plans start"}


class CommandGroup(TyperGroup):
    """The top of the tree. Its help lists commands before groups.

    A command that is typed without its group is run, and its full name is said.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the help."""
        names = dict.fromkeys((*_ORDER, *super().list_commands(ctx)))
        return [name for name in names if name in self.commands]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments name; an old spelling is run with a note."""
        name, paths = args[0], self._list_paths()
        if name not in self.commands and (new := _RENAMED.get(name) or paths.get(name)):
            typer.echo(f"The command is `copilot-runtime {new}` now.", err=True)
            args = [*new.split(), *args[1:]]
        elif name not in paths and not name.startswith("-"):
            close = get_close_matches(name, paths, n=1)
            guess = f" Did you mean `copilot-runtime {paths[close[0]]}`?" if close else ""
            ctx.fail(f"No such command {name!r}.{guess}")
        if name == "chat" and args[1:] and not args[1].startswith("-"):
            args = ["chat", "--url", *args[1:]]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the section of commands, and that of groups."""
        names = self.list_commands(ctx)
        width = formatter.width - 6 - max(map(len, names))
        for title, is_group in (("Commands", False), ("Groups", True)):
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (name, self.commands[name].get_short_help_str(width))
                        for name in names
                        if isinstance(self.commands[name], TyperGroup) is is_group
                    ]
                )

    def _list_paths(self) -> Mapping[str, str]:
        """Return each command with its group before it, by its name; the first of one name."""
        paths = {name: name for name in self.commands}
        for group in GROUPS:
            if isinstance(below := self.commands[group], TyperGroup):
                paths = {name: f"{group} {name}" for name in below.commands} | paths
        return paths


def build_groups(cli: typer.Typer) -> dict[str, typer.Typer]:
    """Add the groups of `GROUPS` to the command line; return each by its name, `cli` by ""."""
    groups = {name: typer.Typer(no_args_is_help=True, rich_markup_mode=None) for name in GROUPS}
    for name, group in groups.items():
        cli.add_typer(group, name=name, help=GROUPS[name])
    return {"": cli, **groups}
