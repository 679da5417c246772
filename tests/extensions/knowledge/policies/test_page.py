"""The page about policies says what is so."""

import re
from pathlib import Path

import pytest

from copilot_runtime.extensions.knowledge.access import AccessAction
from copilot_runtime.extensions.knowledge.policies import build_actor, load_policy
from tests.documents import DOCS, blocks
from tests.in_one_test import in_one_test

PAGE = "knowledge/policies"
TEXT = (DOCS / f"{PAGE}.md").read_text(encoding="utf-8")
RULES = next(block.code for block in blocks("yml", PAGE) if "groups:" in block.code)
ROWS = re.findall(
    r"^\| (\S+(?: through \S+)?) \| (read|write|delete) \| `(\S+)` \| (\w+) \| ([\w ]*?) ?\|$",
    TEXT,
    re.MULTILINE,
)


def test_the_table_of_decisions_is_read() -> None:
    assert len(ROWS) == 14


@in_one_test(("who", "action", "uri", "decision", "rule"), ROWS)
def test_the_rules_of_the_page_decide_as_it_says(
    tmp_path: Path, who: str, action: AccessAction, uri: str, decision: str, rule: str
) -> None:
    (tmp_path / "policy.yml").write_text(RULES)
    name, _, agent = who.partition(" through ")
    actor = build_actor(None if name == "nobody" else name, agent=agent)

    found = load_policy(tmp_path).decide(actor, action, uri)

    assert ("allowed" if found.allowed else "denied", found.rule) == (decision, rule)


def test_nothing_is_odd_about_the_rules_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "policy.yml").write_text(RULES)

    assert load_policy(tmp_path).find_warnings() == []


@in_one_test(("kind", "package"), [("cedar", "cedarpy"), ("rego", "regopy")])
def test_policies_of_the_page_in_other_languages_agree(
    tmp_path: Path, kind: str, package: str
) -> None:
    pytest.importorskip(package)
    (tmp_path / f"policy.{kind}").write_text(blocks(kind, PAGE)[0].code)
    policy = load_policy(tmp_path)
    nobody = build_actor(None)

    decisions = policy.judge(
        nobody,
        "read",
        [
            "common.Folder.handbook/common.Document.d1",
            "common.Folder.handbook/hr.Salary.s1",
            "common.Message.m1",
        ],
    )

    assert decisions == [True, False, False]
    assert [*policy.find_warnings()] == []
    policy.close()
