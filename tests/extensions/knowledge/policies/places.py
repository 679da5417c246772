"""Policies in files, and actors, for tests."""

from pathlib import Path
from textwrap import dedent

import pytest

from copilot_runtime.extensions.knowledge.access import AccessAction, Actor
from copilot_runtime.extensions.knowledge.policies import Policy, build_actor, load_policy
from copilot_runtime.extensions.knowledge.policies.policy import PolicyUnreadable

ANN = build_actor("ann", "t1")
BOB = build_actor("bob", "t1")
NOBODY = build_actor(None, "t1")

HANDBOOK = "common.Folder.handbook"
PAGE = f"{HANDBOOK}/common.Document.p1"
OF_BOB = "common.User.bob/common.Conversation.t1/file.Upload.u1"
OF_NOBODY = "common.Conversation.t1/file.Upload.u1"


def write(folder: Path, text: str, name: str = "policy.yml") -> Path:
    path = folder / name
    path.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
    return path


def load(folder: Path, text: str, name: str = "policy.yml") -> Policy:
    return load_policy(write(folder, text, name))


def allows(policy: Policy, actor: Actor, action: AccessAction, uri: str) -> bool:
    """Return the answer of a policy, which is the same by each of its ways."""
    access = policy.access(actor, action)
    answers = {
        policy.decide(actor, action, uri).allowed,
        access.allows(uri),
        access.judge(["common.Other.o", uri])[1],
        policy.judge(actor, action, [uri])[0],
    }
    assert len(answers) == 1
    return answers.pop()


def problems(folder: Path, text: str, name: str = "policy.yml") -> list[str]:
    """Return what is wrong with a file, without its path."""
    path = write(folder, text, name)
    with pytest.raises(PolicyUnreadable) as raised:
        load_policy(path)
    assert "copilot-runtime knowledge policy check" in (raised.value.hint or "")
    return [line.removeprefix(f"{path}, ") for line in raised.value.message.splitlines()]
