"""Functions of extensions that the commands of the core call, loaded by their import strings.

* `describe_export(settings)`: a sentence on where telemetry is exported to.
* `forget_old_files(threads, before, settings)`: deletes files of deleted threads, returns how many.
* `list_private_state(settings)`: warnings, with a `text` and a `hint`, about state that several
  processes should share.
* `list_worker_variables(settings)`: environment variables for all workers of this machine.
* `name_stores(runtime)`: the settings of a runtime, with the stores that its program constructed.
* `record_command(settings, action, subject)` and `record_dead_run(settings, run)`: audit records.
* `reserve_ports(settings)`: a context manager that keeps further ports for the workers.
* `serve_services(target, services, options)`: serves gRPC only, until a signal.
"""

from typing import Any

from copilot_runtime.api.registry import Registry
from copilot_runtime.extensions import HOOKS


def load_hook(name: str) -> Any:
    """Return a function of an extension by its name in `HOOKS`."""
    return Registry("copilot_runtime.hooks", HOOKS, noun="hook")[name]
