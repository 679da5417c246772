"""The regex that judges a million resources agrees with the rules one by one."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from copilot_runtime.extensions.knowledge.access import AccessAction, Actor
from copilot_runtime.extensions.knowledge.policies.native import NativePolicy, Rule, Scope
from copilot_runtime.extensions.knowledge.policies.native.patterns import UriPattern

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
