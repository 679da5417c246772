"""Read an untrusted file in a separate process with limits of time and memory.

A file can be made that keeps its reader busy for ever, or takes all memory there is. As a program,
this file runs one function of another file over its standard input, and writes what that returns
as JSON, or why there is nothing to return. It imports little, since each file is read in a new
process.
"""

import json
import runpy
import subprocess
import sys

from copilot_runtime.base.errors import CopilotError, LimitExceeded
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.base.processes import limit_cpu, limit_process

MOST_SECONDS = 120
MOST_MEMORY = 2 * 1024**3


class UnreadableDocument(CopilotError):
    """A document cannot be read; the message tells its owner the reason."""

    code = "UNREADABLE_DOCUMENT"
    status_code = 422
    visibility = "banner"
    severity = "warning"


def run_in_sandbox(file: str, function: str, data: bytes, *arguments: str) -> JsonObject:
    """Call `function` of a Python file with `data` and `arguments`, and return what it returns.

    The file is run alone: packages that it is in are imported only if it imports them. Raises
    `UnreadableDocument`, or `LimitExceeded` if it takes too long. It blocks: call it in a thread.
    """
    task = json.dumps({"path": sys.path, "call": [file, function, *arguments]})
    try:
        done = subprocess.run(  # noqa: S603 - nothing of the command is the document's
            [sys.executable, "-I", "-c", _CODE, task, __file__],
            input=data,
            capture_output=True,
            timeout=MOST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LimitExceeded(f"Reading the file takes more than {MOST_SECONDS} seconds.") from error
    if done.returncode:
        raise UnreadableDocument(
            "The file cannot be read: it needs too much memory, or is damaged.",
            hint="Save it anew with another program, and try again.",
        )
    result = loads(done.stdout)
    if reason := result.get("error"):
        kind = LimitExceeded if result["code"] == LimitExceeded.code else UnreadableDocument
        raise kind(reason, hint=result["hint"])
    return result["value"]


_CODE = (
    "import json, runpy, sys; sys.path[:] = json.loads(sys.argv[1])['path']; "
    "runpy.run_path(sys.argv[2], run_name='__main__')"
)
"""Runs this file with the import path of the parent process."""


def main() -> None:
    """Run the function of the task in the first argument, within limits."""
    file, function, *arguments = json.loads(sys.argv[1])["call"]
    limit_cpu(MOST_SECONDS)
    limit_process(memory=MOST_MEMORY, open_files=None)
    try:
        value = runpy.run_path(file)[function](sys.stdin.buffer.read(), *arguments)
    except CopilotError as error:
        result = {"error": error.message, "code": error.code, "hint": error.hint}
    else:
        result = {"value": value}
    sys.stdout.buffer.write(dumps(result))


if __name__ == "__main__":
    main()
