"""Policies: the same rules in YAML, Cedar and Rego judge the URIs of many resources."""

from collections.abc import Iterator

from benchmarks.knowledge.suites import Bench, Measurement, Suite, name_size
from benchmarks.streaming.report import Columns, Table
from benchmarks.streaming.verdict import Promise, highest
from benchmarks.threads.stopwatch import Stopwatch
from copilot_runtime.extensions.knowledge.policies import build_actor, load_policy

_LARGEST = {"yml": 1_000_000, "cedar": 100_000, "rego": 10_000}
"""Cedar would take minutes for more, and Rego longer."""

_RULES = {
    "yml": """
groups: {staff: ["*@example.com"]}
rules:
  - {allow: read, resources: common.Folder.handbook/**}
  - {allow: read, groups: staff, resources: common.Message.*}
  - {deny: all, types: hr.Salary, except: {users: eve}}
  - {allow: all, resources: "home.Page.{user}/**"}
  - {allow: read, users: eve, resources: common.User.*/**}
""",
    "cedar": """
permit (principal, action == Action::"read", resource in Resource::"common.Folder.handbook");
permit (principal in Group::"staff", action == Action::"read", resource)
    when { resource.type == "common.Message" };
forbid (principal, action, resource) when { resource.type == "hr.Salary" };
""",
    "rego": """
package copilot
import rego.v1
default allow := false
allow if startswith(input.resource.uri, "common.Folder.handbook/")
allow if {
    input.resource.type == "common.Message"
    "staff" in input.actor.groups
}
deny if input.resource.type == "hr.Salary"
""",
}


def run(bench: Bench) -> Iterator[Measurement]:
    """Judge for the first time, for somebody who may read half of it, and once more."""
    actor = build_actor("ann@example.com", groups=frozenset({"staff"}))
    for size in bench.sizes:
        case = f"policies-{name_size(size)}"
        uris = [*_uris(size)]
        for kind, rules in _RULES.items():
            if size > _LARGEST[kind]:
                bench.say(f"skipped {case} of {kind}: it takes too long")
                continue
            path = bench.folder / f"{case}.{kind}"
            path.write_text(rules)
            policy = load_policy(path)
            first, again = Stopwatch(), Stopwatch()
            for watch in (first, again):
                with watch.lap():
                    allowed = sum(policy.access(actor, "read").judge(uris))
            policy.close()
            figures = {
                "first_s": round(first.walls_us[0] / 1e6, 3),
                "each_us": round(first.walls_us[0] / size, 2),
                "again_s": round(again.walls_us[0] / 1e6, 3),
                "allowed": allowed,
            }
            yield Measurement(case, kind, figures)


def _uris(size: int) -> Iterator[str]:
    """Yield resources of a folder, of nobody, and of a thousand users."""
    for number in range(size):
        match number % 4:
            case 0:
                yield f"common.Folder.handbook/common.Document.d{number % 99}/common.Chunk.{number}"
            case 1:
                yield f"common.Message.{number:032x}"
            case 2:
                yield f"common.User.u{number % 1000}/common.Conversation.c{number}"
            case _:
                yield f"hr.Salary.{number}"


_COLUMNS: Columns = (
    ("seconds", "first_s"),
    ("µs each", "each_us"),
    ("once more, s", "again_s"),
    ("allowed", "allowed"),
)

SUITE = Suite(
    run=run,
    tables={
        f"policies-{name_size(size)}": Table(f"{size:,} resources judged", _COLUMNS)
        for size in (10_000, 100_000, 1_000_000)
    },
    promises=(
        Promise(
            "rules in YAML judge a million resources",
            *(1.0, 0.6, " s"),
            highest("policies-1M", "yml", "first_s"),
        ),
    ),
)
