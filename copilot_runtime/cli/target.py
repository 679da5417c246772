"""Import the target of `copilot-runtime serve module:name`, with errors that explain."""

import inspect
import sys
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from starlette.applications import Starlette
from starlette.types import ASGIApp

from copilot_runtime.app.app import CopilotRuntime
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError

_USUAL_NAMES = ("runtime", "app")


def find_target(target: str) -> CopilotRuntime | ASGIApp:
    """Return the runtime or application behind `module:name` or `folder/file.py:name`.

    Raises `ConfigurationFailed` with a suggestion for what cannot be found or served.
    """
    where, _, name = target.partition(":")
    module = _import(where)
    found = _attribute(module, name, target)
    return _check_target(found, repr(target))


def find_folder(target: str) -> Path | None:
    """Return the folder of a program that `find_target` has imported, or `None`."""
    where = target.partition(":")[0]
    file = Path(where.removesuffix(".py") + ".py")
    if file.is_file():
        return file.parent.resolve()
    path = getattr(sys.modules.get(where), "__file__", None)
    return Path(path).resolve().parent if path else None


def _import(where: str) -> ModuleType:
    file = Path(where.removesuffix(".py") + ".py")
    folder, module = Path.cwd(), where
    if len(file.parts) > 1 or where.endswith(".py"):
        if not file.is_file():
            raise ConfigurationFailed(f"There is no file '{file}' in {folder}.{_closest(file)}")
        folder, module = file.parent.resolve(), file.stem
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module != missing and not module.startswith(f"{missing}."):
            raise ConfigurationFailed(
                f"{where!r} imports {missing!r}, which is not installed.",
                hint=f"Install it in the environment of {sys.executable}.",
            ) from error
        raise ConfigurationFailed(
            f"No module named {missing!r}. Looked in {folder} and in the installed packages."
            f"{_closest(file)}",
            hint="Run this where your module is, as in: copilot-runtime serve main:runtime",
        ) from error
    except CopilotError:
        raise
    except (Exception, SystemExit) as error:  # user code may raise anything
        raise ConfigurationFailed(
            f"Importing {where!r} failed: {type(error).__name__}: {error}",
            hint="--debug shows where.",
        ) from error


def _closest(file: Path) -> str:
    """Return a hint with the most similar file or the available files; empty without any."""
    names = {
        str(other): other for other in sorted(file.parent.glob("*.py"))[:1000] if other.is_file()
    }
    close = get_close_matches(str(file), names, n=1, cutoff=0.5)
    if close:
        return f" Did you mean '{close[0]}'?"
    return f" Files there: {', '.join(list(names)[:8])}." if names else ""


def _attribute(module: ModuleType, name: str, target: str) -> Any:
    candidates = list(_candidates(module))
    if name:
        found: Any = module
        for part in name.split("."):
            if not hasattr(found, part):
                close = get_close_matches(name, [*vars(module)], n=1)
                choices = ", ".join(candidates) or "none"
                guess = f" Did you mean {close[0]!r}?" if close else ""
                raise ConfigurationFailed(
                    f"{module.__name__!r} has no {name!r}. "
                    f"What could be served there: {choices}.{guess}"
                )
            found = getattr(found, part)
        return found
    usual = [name for name in _USUAL_NAMES if name in candidates]
    choices = usual or candidates
    if not choices:
        raise ConfigurationFailed(
            f"{module.__name__!r} has nothing to serve: no CopilotRuntime and no ASGI application.",
            hint="Add `runtime = CopilotRuntime(...)`, or name a function that returns one.",
        )
    if len(choices) > 1 and not usual:
        raise ConfigurationFailed(
            f"{module.__name__!r} has several things to serve: {', '.join(choices)}.",
            hint=f"Name one: copilot-runtime serve {target}:{choices[0]}",
        )
    return getattr(module, choices[0])


def _candidates(module: ModuleType) -> Iterator[str]:
    for name, value in vars(module).items():
        if not name.startswith("_") and isinstance(value, CopilotRuntime | Starlette):
            yield name


def _check_target(found: Any, what: str) -> CopilotRuntime | ASGIApp:
    if isinstance(found, CopilotRuntime | Starlette):
        return found
    if not callable(found):
        raise ConfigurationFailed(
            f"{what} is of type {type(found).__name__}: not a CopilotRuntime, "
            "an ASGI application or a function that returns one."
        )
    if _accepts(found, 3):
        return cast(ASGIApp, found)
    if _accepts(found, 0):
        result = cast("Callable[[], Any]", found)()
        if inspect.iscoroutine(result):
            result.close()
            raise ConfigurationFailed(f"{what} is async: a function to serve must be a plain one.")
        if _accepts(result, 0):
            raise ConfigurationFailed(f"{what} returned another function, not an application.")
        return _check_target(result, f"What {what} returned")
    raise ConfigurationFailed(
        f"{what} takes arguments: it is neither an ASGI application (scope, receive, send) nor a "
        "function without arguments that returns one."
    )


def _accepts(found: Any, count: int) -> bool:
    """Return `True` if an object can be called with this number of positional arguments."""
    if not callable(found):
        return False
    try:
        inspect.signature(found).bind(*range(count))
    except (TypeError, ValueError):
        return False
    return True
