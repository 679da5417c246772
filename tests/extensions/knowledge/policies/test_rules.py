"""What rules in YAML allow and deny."""

from pathlib import Path
from time import process_time

import pytest

from copilot_runtime.extensions.knowledge.access import AccessAction, AccessDenied, Actor
from copilot_runtime.extensions.knowledge.policies import (
    ALLOW_ALL,
    OWNERS_ONLY,
    build_actor,
    conversation_identifier,
    find_owner,
    narrow_access,
)
from copilot_runtime.extensions.knowledge.policies.ownership import USER
from tests.extensions.knowledge.policies.places import (
    ANN,
    BOB,
    HANDBOOK,
    NOBODY,
    OF_BOB,
    OF_NOBODY,
    PAGE,
    allows,
    load,
)
from tests.in_one_test import in_one_test

EVERYTHING = """
    default: allow
"""


@in_one_test(
    ("pattern", "uri", "is_match"),
    [
        ("a.B.c", "a.B.c", True),
        ("a.B.c", "a.B.c1", False),
        ("a.B.c", "a.B.c/d.E.f", False),
        ("cld:a.B.c", "a.B.c", True),
        ("a.B.*", "a.B.c", True),
        ("a.B.*", "a.B.c/d.E.f", False),
        ("a.B.x*y*z", "a.B.xyzyz", True),
        ("a.B.x*y*z", "a.B.xz", False),
        ("a.*", "a.B.c", True),
        ("*", "a.B.c", True),
        ("*", "a.B.c/d.E.f", False),
        ("a.B.c/*", "a.B.c/d.E.f", True),
        ("a.B.c/*", "a.B.c", False),
        ("a.B.c/*", "a.B.c/d.E.f/g.H.i", False),
        ("a.B.c/**", "a.B.c", True),
        ("a.B.c/**", "a.B.c/d.E.f/g.H.i", True),
        ("a.B.c/**", "a.B.c1/d.E.f", False),
        ("a.B.c/*/**", "a.B.c", False),
        ("a.B.c/*/**", "a.B.c/d.E.f/g.H.i", True),
        ("a.B.*/d.E.*/**", "a.B.c/d.E.f/g.H.i", True),
        ("**", "a.B.c/d.E.f", True),
        ("a.B.c", "a.B.c\n", False),
        ("a.B.*", "a.B.line\nbreak", True),
        ("a.B.c/**", "a.B.c/../d.E.f", False),
        ("a.B.c/**", "a.B.c//d.E.f", False),
        ("a.B.c/**", "a.B.c/", False),
        ("**", "", False),
        ("**", "/a.B.c", False),
        ("a.B.(c|d)", "a.B.c", False),
    ],
)
def test_a_pattern_matches_whole_parts(
    tmp_path: Path, pattern: str, uri: str, is_match: bool
) -> None:
    policy = load(tmp_path, f"rules: [{{allow: read, resources: '{pattern}'}}]")

    assert allows(policy, NOBODY, "read", uri) is is_match


def test_what_no_rule_names_is_denied_unless_the_default_says_otherwise(tmp_path: Path) -> None:
    strict = load(tmp_path, "rules: []", "strict.yml")
    open_ = load(tmp_path, EVERYTHING, "open.yml")

    assert not allows(strict, ANN, "read", PAGE)
    assert allows(open_, NOBODY, "delete", PAGE)


def test_a_rule_that_denies_wins_wherever_it_stands(tmp_path: Path) -> None:
    deny, allow = "{deny: write, users: bob}", "{allow: all}"
    first = load(tmp_path, f"rules: [{deny}, {allow}]", "first.yml")
    last = load(tmp_path, f"rules: [{allow}, {deny}]", "last.yml")

    for policy in (first, last):
        assert not allows(policy, BOB, "write", PAGE)
        assert allows(policy, BOB, "read", PAGE)
        assert allows(policy, ANN, "write", PAGE)


def test_read_includes_list_in_both_directions(tmp_path: Path) -> None:
    policy = load(
        tmp_path,
        f"""
        rules:
          - {{allow: read, resources: {HANDBOOK}/**}}
          - {{deny: read, resources: {HANDBOOK}/common.Document.secret}}
          - {{allow: list, resources: common.Folder.names/**}}
          - {{allow: read, resources: common.Folder.unlisted/**}}
          - {{deny: list, resources: common.Folder.unlisted/**}}
        """,
    )

    assert allows(policy, NOBODY, "list", PAGE)
    assert not allows(policy, NOBODY, "list", f"{HANDBOOK}/common.Document.secret")
    assert allows(policy, NOBODY, "list", "common.Folder.names")
    assert not allows(policy, NOBODY, "read", "common.Folder.names")
    assert allows(policy, NOBODY, "read", "common.Folder.unlisted")
    assert not allows(policy, NOBODY, "list", "common.Folder.unlisted")


def test_rules_are_for_users_groups_and_agents(tmp_path: Path) -> None:
    policy = load(
        tmp_path,
        """
        groups:
          staff: [ann, "*@example.com"]
        rules:
          - {allow: read, groups: staff, resources: common.Folder.staff}
          - {allow: read, users: [ann, "b*"], resources: common.Folder.some}
          - {allow: read, users: "*", resources: common.Folder.members}
          - {allow: read, agents: helper, resources: common.Folder.tools}
          - {allow: read, agents: "*", users: ann, resources: common.Folder.both}
          - {allow: read, users: bob, groups: ops, resources: common.Folder.either}
        """,
    )

    def may(actor: Actor, name: str) -> bool:
        return allows(policy, actor, "read", f"common.Folder.{name}")

    assert may(ANN, "staff")
    assert may(Actor("eve@example.com"), "staff")
    assert may(Actor("eve", groups=frozenset({"staff"})), "staff")
    assert not may(BOB, "staff")
    assert may(BOB, "some")
    assert not may(Actor("eve"), "some")
    assert may(Actor("eve"), "members")
    assert not may(NOBODY, "members")
    assert may(Actor("", agent="helper"), "tools")
    assert not may(Actor("helper"), "tools")
    assert may(build_actor("ann", agent="x"), "both")
    assert not may(ANN, "both")
    assert may(BOB, "either")
    assert may(build_actor("eve", groups=frozenset({"ops"})), "either")


def test_a_rule_can_be_for_types_wherever_they_are(tmp_path: Path) -> None:
    policy = load(
        tmp_path,
        """
        default: allow
        rules:
          - {deny: read, types: [hr.Salary, "tax.*"]}
          - {deny: read, types: common.Note, resources: common.Folder.x/**}
        """,
    )

    assert not allows(policy, ANN, "read", "hr.Salary.ann")
    assert not allows(policy, ANN, "read", "a.B.c/hr.Salary.ann")
    assert not allows(policy, ANN, "read", "a.B.c/tax.Form.1")
    assert allows(policy, ANN, "read", "hr.Salary.ann/a.B.c")
    assert allows(policy, ANN, "read", "hr.SalaryTable.ann")
    assert not allows(policy, ANN, "read", "common.Folder.x/common.Note.n")
    assert allows(policy, ANN, "read", "common.Folder.y/common.Note.n")


def test_an_exception_leaves_out_whom_and_what_it_describes_together(tmp_path: Path) -> None:
    policy = load(
        tmp_path,
        f"""
        rules:
          - allow: read
            resources: {HANDBOOK}/**
            except: {{resources: {HANDBOOK}/common.Folder.drafts/**}}
          - {{allow: read, users: ann, resources: {HANDBOOK}/common.Folder.drafts/**}}
          - deny: read
            types: hr.Salary
            except: {{groups: hr, types: hr.Salary}}
          - {{allow: read, resources: hr.*}}
        """,
    )
    draft = f"{HANDBOOK}/common.Folder.drafts/common.Document.d"
    hr = build_actor("eve", groups=frozenset({"hr"}))

    assert allows(policy, BOB, "read", PAGE)
    assert not allows(policy, BOB, "read", draft)
    assert allows(policy, ANN, "read", draft)
    assert not allows(policy, ANN, "read", "hr.Salary.s")
    assert allows(policy, hr, "read", "hr.Salary.s")


def test_variables_stand_for_what_the_actor_is(tmp_path: Path) -> None:
    policy = load(
        tmp_path,
        """
        rules:
          - {allow: all, resources: "team.Space.{group}/**"}
          - {allow: all, resources: "home.Page.{user}"}
          - {allow: all, resources: "notes.Of.{agent}-{user}"}
        """,
    )
    both = Actor("ann", frozenset({"ops", "dev"}), agent="helper")

    assert allows(policy, both, "write", "team.Space.ops/a.B.c")
    assert allows(policy, both, "write", "team.Space.dev")
    assert not allows(policy, both, "write", "team.Space.hr")
    assert not allows(policy, ANN, "write", "team.Space.{group}")
    assert allows(policy, ANN, "write", "home.Page.ann")
    assert not allows(policy, NOBODY, "write", "home.Page.")
    assert allows(policy, both, "read", "notes.Of.helper-ann")
    assert not allows(policy, ANN, "read", "notes.Of.-ann")


@in_one_test("name", ["*", "a/b.C.d", "a.b", "x:y", "%2F", ".*", "{group}", "a|b"])
def test_a_name_is_never_a_pattern(tmp_path: Path, name: str) -> None:
    policy = load(tmp_path, 'rules: [{allow: read, resources: "home.Page.{user}/**"}]')
    own = f"home.Page.{name.replace('%', '%25').replace('.', '%2E')}"
    own = own.replace("/", "%2F").replace(":", "%3A")
    actor = build_actor(name, name)

    assert allows(policy, actor, "read", f"{own}/a.B.c")
    assert not allows(policy, actor, "read", "home.Page.other/a.B.c")
    assert allows(policy, actor, "write", actor.conversation)
    assert not allows(policy, actor, "write", "common.User.other")
    assert actor.conversation.count("/") == 1


@in_one_test("text", ["rules: []", EVERYTHING, "rules: [{allow: all}]"])
def test_what_belongs_to_a_person_is_theirs_alone(tmp_path: Path, text: str) -> None:
    policy = load(tmp_path, text)

    for action in ("read", "write", "list", "delete"):
        assert allows(policy, BOB, action, OF_BOB)
        assert not allows(policy, ANN, action, OF_BOB)
        assert not allows(policy, NOBODY, action, OF_BOB)
        assert allows(policy, NOBODY, action, OF_NOBODY)
        assert not allows(policy, BOB, action, OF_NOBODY)
        assert not allows(policy, build_actor(None, "t2"), action, OF_NOBODY)
        assert not allows(policy, build_actor(None), action, OF_NOBODY)
        assert not allows(policy, ANN, action, "common.User.x.ann/a.B.c")
        assert not allows(policy, ANN, action, "common.User./a.B.c")


def test_a_rule_that_names_owners_gives_away_what_is_theirs(tmp_path: Path) -> None:
    policy = load(
        tmp_path,
        """
        rules:
          - {allow: read, users: ann, resources: common.User.*/common.Conversation.*/**}
          - {deny: delete, resources: "**"}
        """,
    )

    assert allows(policy, ANN, "read", OF_BOB)
    assert not allows(policy, ANN, "write", OF_BOB)
    assert not allows(policy, BOB, "delete", OF_BOB)


def test_a_conversation_of_a_user_is_no_way_into_those_of_nobody() -> None:
    forged = Actor("ann", conversation="common.Conversation.t1")

    assert allows(OWNERS_ONLY, forged, "read", OF_NOBODY)
    assert not allows(OWNERS_ONLY, ANN, "read", OF_NOBODY)
    assert not allows(OWNERS_ONLY, Actor("", conversation="common.User.bob"), "read", OF_BOB)


def test_without_a_policy_all_read_what_is_nobodys_and_none_writes_it() -> None:
    assert allows(OWNERS_ONLY, NOBODY, "read", PAGE)
    assert allows(OWNERS_ONLY, NOBODY, "list", PAGE)
    assert not allows(OWNERS_ONLY, ANN, "write", PAGE)
    assert allows(OWNERS_ONLY, ANN, "write", "common.User.ann/a.B.c")
    assert not allows(OWNERS_ONLY, ANN, "read", OF_BOB)
    assert "'public'" in OWNERS_ONLY.decide(ANN, "read", PAGE).reason


@in_one_test("name", ["a" * 500, "é" * 100, "a/" * 60, "a" * 127, "a" * 128, "\udcff" * 90])
def test_whatever_somebody_is_called_their_resources_can_be_stored_and_are_theirs(
    name: str, tmp_path: Path
) -> None:
    policy = load(tmp_path, "rules: [{allow: read, resources: 'home.Page.{user}'}]")
    actor, conversation = build_actor(name, name), str(conversation_identifier(name, name))
    forger = build_actor(find_owner_name(conversation))

    assert max(len(part.encode()) for part in conversation.split("/")) < 200
    assert actor.conversation == conversation
    assert allows(policy, actor, "write", conversation)
    assert not allows(policy, ANN, "write", conversation)
    assert allows(policy, forger, "write", conversation) is (forger == build_actor(name))
    assert allows(policy, actor, "read", conversation.partition("/")[0].replace(USER, "home.Page"))


def find_owner_name(uri: str) -> str:
    owner = find_owner(uri)
    assert owner is not None
    return owner.name


def test_an_access_can_be_narrowed_to_the_files_of_one_conversation() -> None:
    here, there = (str(conversation_identifier("ann", it)) for it in ("t1", "t2"))
    access = OWNERS_ONLY.access(ANN, "read")
    narrow = narrow_access(access, here)
    files = [f"{it}/file.Upload.u/common.Chunk.1" for it in (here, there, f"{here}0")]
    uris = [*files, there, f"{there}/a.B.c", OF_BOB, PAGE, "common.User.ann"]

    assert narrow.judge(uris) == [True, False, False, True, True, False, True, True]
    assert [*map(narrow.allows, uris)] == narrow.judge(uris)
    assert access.judge(uris) == [True, True, True, True, True, False, True, True]
    assert narrow.key == narrow_access(access, here).key != narrow_access(access, there).key


def test_what_is_denied_says_no_word_of_the_resource() -> None:
    with pytest.raises(AccessDenied) as raised:
        OWNERS_ONLY.check(ANN, "read", [PAGE, OF_BOB])

    assert raised.value.report().message == "Access denied"
    assert raised.value.report().status_code == 403
    assert raised.value.hint is None
    OWNERS_ONLY.check(ANN, "read", [PAGE])
    ALLOW_ALL.check(ANN, "delete", [OF_BOB])


def test_a_key_differs_whenever_an_answer_may(tmp_path: Path) -> None:
    policies = [load(tmp_path, "rules: []", f"{n}.yml") for n in range(2)]
    actions: tuple[AccessAction, ...] = ("read", "list")
    keys = {
        policy.access(actor, action).key
        for policy in (*policies, OWNERS_ONLY, ALLOW_ALL)
        for actor in (ANN, BOB, build_actor("ann", "t2"))
        for action in actions
    }

    assert len(keys) == 24
    assert policies[0].access(ANN, "read").key == policies[0].access(ANN, "read").key


def test_a_thousand_rules_are_as_fast_as_one(tmp_path: Path) -> None:
    rules = "\n".join(f"  - {{allow: read, resources: a.Doc.d{n}/**}}" for n in range(1000))
    policy = load(tmp_path, f"rules:\n{rules}\n")
    access = policy.access(ANN, "read")
    uris = [f"a.Doc.d{n % 2000}/b.Chunk.{n}" for n in range(100_000)]
    access.judge(uris[:1])

    began = process_time()
    allowed = access.judge(uris)
    seconds = process_time() - began

    assert sum(allowed) == 50_000
    assert seconds < 1.0  # 0.1 on the machine where it was written


@in_one_test("length", [10, 200])
def test_rules_may_be_beginnings_of_each_other(tmp_path: Path, length: int) -> None:
    names = ["n" * size for size in range(1, length)]
    rules = "\n".join(f"  - {{allow: read, resources: a.B.{name}}}" for name in names)
    policy = load(tmp_path, f"rules:\n{rules}\n")
    access = policy.access(ANN, "read")

    assert all(access.judge(f"a.B.{name}" for name in names))
    assert not access.allows(f"a.B.{'n' * length}")
