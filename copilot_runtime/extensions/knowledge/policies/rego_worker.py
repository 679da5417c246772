"""The worker process of Rego policies: reads and writes lines of JSON.

It imports nothing of this package. regopy is native code: a policy that makes it crash ends this
process, and not the server.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

_ALLOW = "data.copilot.allow"
_DENY = "data.copilot.deny"
_PROBE = {
    "actor": {"name": "", "groups": [], "agent": "", "conversation": ""},
    "action": "read",
    "resources": [
        {"uri": "a.B.c", "type": "a.B", "name": "c", "parent": "", "path": "", "owner": ""}
    ],
}
"""A probe question, which reveals undefined references in a policy."""

Judge = Callable[[dict[str, Any]], Any]


def main() -> None:
    """Read the policy from the first line, and answer every line."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the native code prints what it thinks
    judge: Judge | None = None
    for line in sys.stdin:
        message = json.loads(line)
        if judge is None:
            judge, reply = _prepare(message)
        else:
            reply = [judge(question) for question in _questions(message)]
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


def _prepare(policy: dict[str, Any]) -> tuple[Judge | None, Any]:
    """Compile a policy. Returns the judge, or `None` on errors, and the reply to the first line."""
    # it has no stubs
    from regopy import Input, Interpreter, RegoError  # type: ignore[reportMissingTypeStubs]

    interpreter = Interpreter()
    name = ""
    try:
        if policy["data"]:
            name = "data.json"
            interpreter.add_data(policy["data"])
        for name, text in policy["modules"].items():
            interpreter.add_module(name, text)
        name = ""
        text = "".join(policy["modules"].values())
        rules = [_ALLOW, _DENY] if "deny" in text else [_ALLOW]  # a rule is spelled somewhere
        bundles = {rule: interpreter.build(rule) for rule in rules}
    except RegoError as error:
        return None, {"error": str(error), "file": name}

    def ask(rule: str) -> Any:
        output = interpreter.query_bundle(bundles[rule])
        found = str(output)
        if found == "undefined":
            return None
        values = json.loads(found)["expressions"] if output.ok() else []
        if len(values) != 1:
            raise ValueError(f"{rule} has no single value: {found}")
        return values[0]

    def judge(question: dict[str, Any]) -> Any:
        interpreter.set_input(Input(question))
        try:
            return [*map(ask, rules)]
        except (RegoError, ValueError) as error:  # regopy reads its own errors as JSON
            return {"error": str(getattr(error, "doc", error)).strip() or str(error)}

    probe = judge(next(_questions(_PROBE)))
    return (None, probe) if "error" in probe else (judge, {"ready": True})


def _questions(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in request["resources"]:
        yield {"actor": request["actor"], "action": request["action"], "resource": resource}


if __name__ == "__main__":
    main()
