"""Mistakes in a file of rules are named with their place, all at once."""

from pathlib import Path

import pytest

from tests.extensions.knowledge.policies.places import ANN, allows, load, problems, write
from tests.in_one_test import in_one_test


@in_one_test(
    ("text", "expected"),
    [
        (
            "",
            "the file is empty: write at least 'default: deny'",
        ),
        (
            "# nothing",
            "the file is empty: write at least 'default: deny'",
        ),
        (
            "- allow: read",
            "line 1, column 1: a policy is a mapping with default, groups, rules, not a list",
        ),
        (
            "default: maybe",
            "line 1, column 10: 'maybe' is none of deny, allow",
        ),
        (
            "defualt: deny",
            "line 1, column 1: a policy has no key 'defualt'; did you mean 'default'?",
        ),
        (
            "x: 1",
            "line 1, column 1: a policy has no key 'x'; known: default, groups, rules",
        ),
        (
            "rules: 1",
            "line 1, column 8: 'rules' is a list: each begins with '- ', not '1'",
        ),
        (
            "rules: []\nrules: []",
            "line 2, column 1: 'rules' stands here twice",
        ),
        (
            "groups: [a]",
            "line 1, column 9: groups is a mapping, not a list",
        ),
        (
            "groups:\n  staff:\n",
            "line 2, column 9: a group wants a text, not nothing; put quotes around a text "
            "with braces or a star at its beginning",
        ),
        (
            "groups:\n  staff: []\n",
            "line 2, column 10: a group is empty; leave the key out if it is for all",
        ),
        (
            "rules:\n  - read\n",
            "line 2, column 5: a rule is a mapping with name, allow, deny, users, groups, "
            "agents, resources, types, except, not 'read'",
        ),
        (
            "rules:\n  - users: ann\n",
            "line 2, column 5: a rule has either 'allow' or 'deny', with its actions",
        ),
        (
            "rules:\n  - {allow: read, deny: read}\n",
            "line 2, column 5: a rule has either 'allow' or 'deny', with its actions",
        ),
        (
            "rules:\n  - allow: [read, raed]\n",
            "line 2, column 19: 'raed' is none of read, write, list, delete, all",
        ),
        (
            "rules:\n  - {allow: read, user: ann}\n",
            "line 2, column 19: a rule has no key 'user'; did you mean 'users'?",
        ),
        (
            "rules:\n  - allow: read\n    resources: common.Message\n",
            "line 3, column 16: the pattern 'common.Message' matches nothing: "
            "'common.Message' names no resource: a part is type.name, such as "
            "common.Message.*",
        ),
        (
            "rules:\n  - allow: read\n    resources: [a.B.c, hr]\n",
            "line 3, column 24: the pattern 'hr' matches nothing: 'hr' names no resource: a "
            "part is type.name, such as common.Message.*",
        ),
        (
            "rules:\n  - allow: read\n    resources: '**/a.B.c'\n",
            "line 3, column 16: the pattern '**/a.B.c' matches nothing: `**` can only be "
            "the last part: for a type of resource anywhere, use `types`",
        ),
        (
            "rules:\n  - allow: read\n    resources: a.B.**\n",
            "line 3, column 16: the pattern 'a.B.**' matches nothing: `**` can only be the "
            "last part: for a type of resource anywhere, use `types`",
        ),
        (
            "rules:\n  - allow: read\n    resources: a.B.c/\n",
            "line 3, column 16: the pattern 'a.B.c/' matches nothing: a part between "
            "slashes is empty or begins with a dot",
        ),
        (
            "rules:\n  - allow: read\n    resources: a.B.{owner}\n",
            "line 3, column 16: the pattern 'a.B.{owner}' matches nothing: there is no "
            "{owner}: the variables are {user}, {agent}, {group}",
        ),
        (
            "rules:\n  - {allow: read, types: Message}\n",
            "line 2, column 26: 'Message' is no type: a type is two words, as in common.Message",
        ),
        (
            "rules:\n  - {allow: read, except: {}}\n",
            "line 2, column 27: 'except' is empty: it would leave out everything",
        ),
        (
            "rules:\n  - {allow: read, name: [a, b]}\n",
            "line 2, column 25: a rule has one name",
        ),
        (
            "rules:\n  - {allow: read, name: a}\n  - {deny: read, name: a}\n",
            "line 3: there is a rule 'a' before: names differ",
        ),
        (
            "rules: [",
            "line 1, column 9: not YAML: expected the node content, but found '<stream end>'",
        ),
        (
            "rules:\n  - allow: read\n    resources: **\n",
            "line 3, column 17: not YAML: expected alphabetic or numeric character, but "
            "found '*'; put quotes around a text that begins with a star",
        ),
        (
            "rules: \x00",
            "not YAML: unacceptable character #x0000: special characters are not allowed",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, expected: str) -> None:
    found = problems(tmp_path, text)[0]

    assert (found.partition("policy.yml: ")[2] or found) == expected


def test_all_mistakes_are_named_in_the_order_of_the_file(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        """
        rules:
          - allow: raed
            users: []
          - deny: read
            resources: {user}
        default: x
        """,
    )

    assert [line.partition(":")[0] for line in found] == [
        "line 2, column 12",
        "line 3, column 12",
        "line 5, column 16",
        "line 6, column 10",
    ]


def test_words_that_yaml_takes_for_something_else_are_names(tmp_path: Path) -> None:
    policy = load(
        tmp_path,
        """
        groups: {no: [yes, 123]}
        rules: [{allow: read, groups: no, resources: &all ["**"]}, {deny: write, resources: *all}]
        """,
    )

    assert not allows(policy, ANN, "read", "a.B.c")
    for name in ("yes", "123"):
        assert policy.access(ANN.__class__(name), "read").allows("a.B.c")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    path.write_bytes(b"\xff\xfe")

    assert problems_of(path) == ["it cannot be read: it is not UTF-8 text"]


def problems_of(path: Path) -> list[str]:
    from copilot_runtime.extensions.knowledge.policies import load_policy
    from copilot_runtime.extensions.knowledge.policies.policy import PolicyUnreadable

    with pytest.raises(PolicyUnreadable) as raised:
        load_policy(path)
    return [problem.message for problem in raised.value.problems]
