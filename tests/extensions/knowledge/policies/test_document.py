"""Mistakes in a file of rules are named with their place, all at once."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copilot_runtime.extensions.knowledge.access import AccessAction, Actor
from copilot_runtime.extensions.knowledge.policies.rule_policy import NativePolicy
from copilot_runtime.extensions.knowledge.policies.rules import Rule, Scope, UriPattern
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
            "agents, files, resources, types, except, not 'read'",
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
            "rules:\n  - {deny: read, files: ./}\n",
            "line 2, column 25: './' is the whole folder of the server: name what is in it",
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


names = st.sampled_from(["a", "ab", "b", "a*", "ann", "x.y"])
parts = st.builds(
    ".".join, st.tuples(st.sampled_from(["a", "common"]), st.sampled_from(["B", "User"]), names)
)
uris = st.lists(parts, min_size=1, max_size=3).map("/".join) | st.text("ab./*", max_size=6)
glob = parts | st.sampled_from(["*", "a.*", "common.User.*", "a.B.a*b", "common.User.{user}"])
patterns = st.tuples(st.lists(glob, min_size=1, max_size=2), st.sampled_from(["", "/**"])).map(
    lambda both: UriPattern("/".join(both[0]) + both[1])
)
scopes = st.builds(
    Scope,
    users=st.sampled_from([(), ("ann",), ("*",)]),
    patterns=st.lists(patterns, max_size=2).map(tuple),
    types=st.sampled_from([(), ("a.B",), ("a.*", "common.User")]),
)
actions: st.SearchStrategy[frozenset[AccessAction]] = st.frozensets(
    st.sampled_from(["read", "write"]), min_size=1
)
rules = st.builds(
    Rule, st.sampled_from(["allow", "deny"]), actions, scopes, st.none() | scopes, line=st.just(1)
)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(rules, max_size=4),
    st.sampled_from(["allow", "deny"]),
    st.sampled_from([Actor("ann"), Actor(""), Actor("", conversation="common.Conversation.a")]),
    st.lists(uris, min_size=1, max_size=5),
)
def test_both_ways_to_judge_say_the_same(
    rules: list[Rule], default: str, actor: Actor, uris: list[str]
) -> None:
    policy = NativePolicy(rules, default="allow" if default == "allow" else "deny")

    decisions = [policy.decide(actor, "read", uri).allowed for uri in uris]

    assert policy.access(actor, "read").judge(uris) == decisions
    for uri, allowed in zip(uris, decisions, strict=True):
        assert policy.explain(actor, "read", uri).decision.allowed is allowed


@settings(max_examples=400, deadline=None)
@given(st.lists(rules, min_size=1, max_size=4), st.lists(uris, min_size=1, max_size=5))
def test_a_rule_of_which_is_said_that_it_never_matters_does_not(
    rules: list[Rule], uris: list[str]
) -> None:
    numbered = [replace(rule, line=number) for number, rule in enumerate(rules)]
    policy = NativePolicy(numbered)
    idle = [it.line for it in policy.find_warnings() if "never" in it.message][:1]
    without = NativePolicy([rule for rule in numbered if rule.line not in idle])

    for actor in (Actor("ann"), Actor("")):
        assert policy.access(actor, "read").judge(uris) == without.access(actor, "read").judge(uris)
