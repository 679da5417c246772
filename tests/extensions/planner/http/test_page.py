"""The page *Plans* is served where an agent plans, and beside the routes of plans at the root."""

from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.extensions.planner.engine import PlanEngine
from tests.extensions.planner.crew import Crew, build_engine
from tests.extensions.planner.http.server import LOCAL, wrap_engine
from tests.in_one_test import in_one_test

BROWSER = {"accept": "text/html,*/*"}


def build_runtime(engine: PlanEngine | None = None, *, traces: str = "memory") -> CopilotRuntime:
    agents = {"planner": wrap_engine(engine)} if engine else {}
    settings = Settings.model_validate({"threads": "memory", "telemetry": {"store": traces}})
    return CopilotRuntime(ScriptedAdapter(), agents=agents, settings=settings)


def test_the_chat_leads_to_the_page_where_an_agent_plans() -> None:
    with TestClient(build_runtime(build_engine(Crew())).app(), base_url=LOCAL) as client:
        assert 'href="/plans"' in client.get("/").text
        page = client.get("/plans")
        assert (page.status_code, "<title>Plans" in page.text) == (200, True)
        assert 'data-endpoint="/graphql"' in page.text
        assert 'id="traces" href="/traces"' in page.text
    with TestClient(build_runtime().app(), base_url=LOCAL) as client:
        assert 'href="/plans"' not in client.get("/").text
        assert client.get("/plans").status_code == 404


def test_where_no_traces_are_kept_the_page_leads_to_none() -> None:
    runtime = build_runtime(build_engine(Crew()), traces="none")
    with TestClient(runtime.app(), base_url=LOCAL) as client:
        assert 'id="traces" href=""' in client.get("/plans").text


@in_one_test("headers", [{}, {"accept": "application/json"}])
def test_at_the_root_the_page_is_for_browsers_alone(headers: dict[str, str]) -> None:
    runtime = build_runtime(build_engine(Crew()))
    with TestClient(runtime.app("/"), base_url=LOCAL) as client:
        assert "<title>Plans" in client.get("/plans", headers=BROWSER).text
        assert client.get("/plans", headers=headers).json()["plans"] == []


def test_without_a_console_there_is_no_page() -> None:
    runtime = build_runtime(build_engine(Crew()))
    with TestClient(runtime.app(console=False), base_url=LOCAL) as client:
        assert client.get("/plans", headers=BROWSER).status_code == 404
        assert client.get("/graphql/plans").status_code == 200
