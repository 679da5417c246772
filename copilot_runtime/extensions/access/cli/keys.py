"""The commands `copilot-runtime operate keys`: create, list and revoke API keys."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from copilot_runtime.cli.output import JsonOption, show_json, show_table
from copilot_runtime.cli.program import ProgramOption
from copilot_runtime.cli.threads import ConfigOption
from copilot_runtime.extensions.access.audit.command import record_command
from copilot_runtime.extensions.program import load_command_settings

if TYPE_CHECKING:
    from copilot_runtime.extensions.access.api_keys.key import ApiKey, KeyStore
    from copilot_runtime.extensions.settings import Settings

T = TypeVar("T")

keys = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

StoreOption = Annotated[
    str | None,
    typer.Option("--store", help="Store, such as sqlite:access.db; default: api_keys.store."),
]


@keys.callback()
def look_after() -> None:
    """Create, list and revoke the API keys with which programs authenticate.

    \b
    copilot-runtime operate keys create ci --role reader --expires 90d
    copilot-runtime operate keys list
    copilot-runtime operate keys revoke cpk_0123456789abcdef
    copilot-runtime operate keys create ci --program main:runtime

    The key store is that of copilot.yml and the environment, or of the Settings(...) of a program
    named by --program.

    These commands may be used while servers run: a new key is valid immediately, and a revoked one
    is refused within two seconds. Servers accept keys if access.authenticate contains api_keys.
    """


@keys.command()
def create(
    name: Annotated[str, typer.Argument(help="Name of the key, such as ci.")],
    user: Annotated[
        str | None,
        typer.Option(help="Owner of data created with the key. Default: the key itself."),
    ] = None,
    tenant: Annotated[str, typer.Option(help="The tenant of that user.")] = "",
    role: Annotated[
        list[str] | None,
        typer.Option(help="Role of the key: operator, user, reader, or one of access.roles."),
    ] = None,
    scope: Annotated[
        list[str] | None, typer.Option(help="Limit it to this scope, such as threads:read.")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(help="Expiry: 12h, 90d, 8w, 1y, or a date such as 2027-01-31."),
    ] = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Create a key, and print it once: only its hash is stored.

    \b
    copilot-runtime operate keys create ci
    copilot-runtime operate keys create reports --user ann --tenant acme --role reader --expires 90d
    copilot-runtime operate keys create admin --role operator --expires 12h
    COPILOT_KEY=$(copilot-runtime operate keys create ci --json | jq -r .key)

    --role and --scope may be given several times. Only the key is written to stdout.
    """
    from copilot_runtime.extensions.access.api_keys.issue import NewKey, describe_rights, make_key

    settings = load_command_settings(program, config, has_notice=store is None)
    now = time.time()
    new = NewKey(
        name=name, user=user, tenant=tenant, roles=role or [], scopes=scope, expires=expires
    )
    key, secret = make_key(settings, new, now)
    _run(settings, store, lambda keys: keys.add(key))
    record_command(settings, "keys.create", describe_rights(key))
    if as_json:
        show_json({"key": secret, **_describe(key, now)})
        return
    typer.echo(secret)
    typer.echo("Keep it now: it is not shown again.", err=True)
    typer.echo(f"Servers find it in {_describe_place(settings, store)}.", err=True)
    if "api_keys" not in settings.access.authenticate:
        typer.echo(
            "No server takes keys yet: set access.authenticate: [api_keys] in copilot.yml.",
            err=True,
        )


@keys.command("list")
def show(
    all: Annotated[bool, typer.Option("--all", help="Include revoked and expired keys.")] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """List keys, the oldest first, without their secrets.

    \b
    copilot-runtime operate keys list
    copilot-runtime operate keys list --all --json | jq '.[] | select(.used_at == null)'
    """

    found = _run(
        load_command_settings(program, config, has_notice=store is None),
        store,
        lambda keys: keys.list_keys(),
    )
    now = time.time()
    rows = [_describe(key, now) for key in found if all or key.describe_state(now) == "active"]
    if as_json:
        show_json(rows)
        return
    head = ("KEY", "NAME", "USER", "TENANT", "ROLES", "SCOPES", "EXPIRES", "LAST USED", "STATE")
    show_table(
        head,
        [
            (
                *(row["prefix"], row["name"], row["user"], row["tenant"] or "-"),
                ",".join(row["roles"]) or "-",
                "all" if row["scopes"] is None else ",".join(row["scopes"]),
                *(row["expires_at"] or "never", row["used_at"] or "never", row["state"]),
            )
            for row in rows
        ],
        "There are no keys. `copilot-runtime operate keys create NAME` makes one.",
    )


@keys.command()
def revoke(
    key: Annotated[str, typer.Argument(help="Prefix of the key, as `list` shows it, or its name.")],
    store: StoreOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Revoke a key: every server refuses it within two seconds. This cannot be undone.

    \b
    copilot-runtime operate keys revoke cpk_0123456789abcdef
    copilot-runtime operate keys revoke ci
    """

    from copilot_runtime.extensions.access.api_keys.issue import describe_rights, find_key

    async def work(keys: "KeyStore") -> "ApiKey":
        found = find_key(await keys.list_keys(), key)
        await keys.revoke(found.id, time.time())
        return found

    settings = load_command_settings(program, config, has_notice=store is None)
    found = _run(settings, store, work)
    record_command(settings, "keys.revoke", describe_rights(found))
    was = "was revoked before" if found.revoked_at is not None else "is revoked"
    typer.echo(f"{found.prefix} ({found.name}) {was}.")


def _run(settings: "Settings", store: str | None, work: "Callable[[KeyStore], Awaitable[T]]") -> T:
    from copilot_runtime.extensions.access.api_keys.store import build_key_store, choose_address

    async def run() -> T:
        keys = build_key_store(store or choose_address(settings))
        try:
            return await work(keys)
        finally:
            await keys.aclose()

    return asyncio.run(run())


def _describe_place(settings: "Settings", store: str | None) -> str:
    """Return the location of the keys without its address, which may have a password."""
    from copilot_runtime.extensions.access.api_keys.store import choose_address

    kind, _, path = (store or choose_address(settings)).partition(":")
    if kind == "sqlite":
        return str(Path(path[3:] if path.startswith("///") else path).absolute())
    if store or settings.api_keys.store:
        return f"the database of {'--store' if store else 'api_keys.store'}"
    return "the database of the threads"


def _describe(key: "ApiKey", now: float) -> dict[str, Any]:
    """Return the JSON of a key, with times as text."""
    return {
        name: _format_time(value) if name.endswith("_at") else value
        for name, value in key.describe(now).items()
    }


def _format_time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
