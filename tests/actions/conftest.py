"""A call's context and a request, for every test of actions."""

import pytest

from copilot_runtime.api import ActionContext, RunInput


@pytest.fixture
def context() -> ActionContext:
    return ActionContext(
        thread_id="t", run_id="r", call_id="c", properties={"user": "ann"}, headers={}
    )


@pytest.fixture
def run() -> RunInput:
    return RunInput(thread_id="t", run_id="r", messages=[], properties={"admin": True})
