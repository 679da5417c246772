"""Every door of a server with everything: who gets in, and that nobody sees what is another's.

`python -m tests.extensions.access.matrix --full` tries
 each door with each credential and each person.
"""

import asyncio

import pytest

from copilot_runtime import CopilotRuntime, DemoAdapter, Settings
from copilot_runtime.transports.transport import Transport
from tests.extensions.access.matrix.callers import BASE
from tests.extensions.access.matrix.doors import list_doors
from tests.extensions.access.matrix.report import Report, run_matrix
from tests.extensions.access.matrix.rows import ROWS


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Return what came of all requests, in one server."""
    return asyncio.run(run_matrix(tmp_path_factory.mktemp("matrix")))


def describe(report: Report, part: str) -> list[str]:
    assert report.asked[part] > 0
    return [str(finding) for finding in report.findings[part]]


def test_every_door_of_the_application_is_tried(report: Report) -> None:
    unknown = [
        f"{door} has no row: say in matrix/rows what is asked there, and in "
        "docs/access/threat-model.md who may"
        for door in sorted({*report.doors} - {*ROWS})
    ]

    assert unknown == []
    assert {*ROWS} - {*report.doors} == set(), "these doors are gone"
    assert len(ROWS) > 200


def test_the_doors_are_open_to_whom_things_belong(report: Report) -> None:
    assert describe(report, "Ann") == []


def test_no_door_opens_to_a_credential_that_is_forged_late_or_missing(report: Report) -> None:
    assert describe(report, "strangers") == []


def test_a_token_of_a_service_opens_one_door_once(report: Report) -> None:
    assert describe(report, "replays") == []


def test_a_key_without_scopes_sees_nothing(report: Report) -> None:
    assert describe(report, "scopes") == []


def test_no_door_shows_one_person_what_is_of_another(report: Report) -> None:
    assert describe(report, "people") == []


def test_no_stream_shows_one_person_what_another_does_as_it_happens(report: Report) -> None:
    assert describe(report, "live") == []


def test_no_tool_of_mcp_shows_one_person_what_is_of_another(report: Report) -> None:
    assert describe(report, "tools") == []


def test_operators_see_plans_and_traces_and_no_threads(report: Report) -> None:
    assert describe(report, "operator") == []


def test_no_answer_tells_whether_another_has_what_is_asked_for(report: Report) -> None:
    assert describe(report, "existence") == []


def test_nobody_changes_what_is_of_another(report: Report) -> None:
    assert describe(report, "changes") == []


def test_a_new_route_or_transport_is_a_door_without_a_row() -> None:
    class Forgotten(Transport):
        paths = ("forgotten/{id}",)

    runtime = CopilotRuntime(
        DemoAdapter(),
        transports=["agui", lambda _: Forgotten()],
        settings=Settings(threads="memory"),
    )
    app = runtime.app(path=BASE)
    app.add_api_route("/mine", lambda: "", methods=["PUT"])

    assert {*list_doors(runtime, app)} - {*ROWS} == {"Forgotten forgotten/{id}", "PUT /mine"}
