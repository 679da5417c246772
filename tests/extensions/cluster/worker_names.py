"""An action that says in which process it runs: a program for `copilot-runtime serve`."""

import os

from copilot_runtime import CopilotRuntime, action


@action
def name_process() -> str:
    """Return the number of the process."""
    return f"process {os.getpid()}"


runtime = CopilotRuntime(actions=[name_process], agents={})
"""Whichever worker answers."""
