"""Plans over gRPC: a message is planned, carried out, and answered."""

import grpc
import pytest
from grpc.aio import AioRpcError

from copilot_runtime.adapters.scripted import say
from copilot_runtime.extensions.grpc.protos import plan_pb2
from copilot_runtime.extensions.grpc.protos.plan_pb2_grpc import PlanStub
from tests.extensions.grpc.servers import build_settings, serve
from tests.extensions.planner.test_agent import build_planner, write_plan
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

TASK = {"name": "letter", "purpose": "Write a letter."}


async def test_a_message_is_planned_and_answered() -> None:
    planner = build_planner([write_plan(TASK)], [say("Dear Ann.")])
    async with (
        serve(build_settings("plan"), agents={"planner": planner}) as served,
        served.connect() as channel,
    ):
        stream = PlanStub(channel).Process(plan_pb2.ProcessRequest(content="A letter."))
        found = [message async for answer in stream for message in answer.messages]

    assert [(one.role, one.content) for one in found] == [("assistant", "Dear Ann.")]


@in_one_test(
    ("request_", "words"),
    [
        (plan_pb2.ProcessRequest(content=" "), "Write into content what shall be done."),
        (plan_pb2.ProcessRequest(content="a", agent="none"), "one of those that plan: planner"),
    ],
)
async def test_what_cannot_be_planned_is_refused(
    request_: plan_pb2.ProcessRequest, words: str
) -> None:
    planner = build_planner([], [])
    async with (
        serve(build_settings("plan"), agents={"planner": planner}) as served,
        served.connect() as channel,
    ):
        with pytest.raises(AioRpcError) as caught:
            _ = [one async for one in PlanStub(channel).Process(request_)]

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert words in (caught.value.details() or "")
