"""Events over gRPC: published by those who may write, followed by those who may read."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import grpc
import pytest
from google.protobuf.struct_pb2 import Struct
from grpc.aio import AioRpcError

from copilot_runtime.adapters.scripted import say
from copilot_runtime.extensions.grpc.client import ServiceChannel
from copilot_runtime.extensions.grpc.protos import event_pb2, plan_pb2
from copilot_runtime.extensions.grpc.protos.event_pb2_grpc import EventStub
from copilot_runtime.extensions.grpc.protos.plan_pb2_grpc import PlanStub
from tests.extensions.grpc.servers import Served, build_settings, serve
from tests.extensions.planner.test_agent import build_planner, write_plan
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

OF_ANN = "common.User.ann/common.Note.n1"


@pytest.fixture
async def served() -> AsyncGenerator[Served]:
    settings = build_settings("event", roles=["operator"], events={"store": "memory"})
    async with serve(settings) as served:
        yield served


def order(resource: str = OF_ANN, **more: Any) -> event_pb2.PublishRequest:
    detail = Struct()
    detail.update({"count": 2})
    fields: dict[str, Any] = {
        "detail_type": "ORDER_PLACED",
        "source": "shop",
        "resources": [resource],
        "detail": detail,
        **more,
    }
    return event_pb2.PublishRequest(**fields)


async def follow(channel: ServiceChannel, **more: Any) -> Any:
    """Return a stream of events, from which its beginning has been read."""
    stream = EventStub(channel).Subscribe(event_pb2.SubscribeRequest(**more))
    await stream.read()
    return stream


async def test_an_event_reaches_who_may_read_its_resource(served: Served) -> None:
    async with served.connect() as channel:
        ann, bob = channel.act_for("ann"), channel.act_for("bob")
        of_ann, of_bob = await follow(ann), await follow(bob)
        done = await EventStub(ann).Publish(order())
        found = await of_ann.read()
        await EventStub(bob).Publish(order("common.User.bob/common.Note.n1"))
        seen: list[str] = []
        while not seen:
            seen += [uri for event in (await of_bob.read()).events for uri in event.resources]

    (event,) = found.events
    assert (event.id, event.detail_type, event.source) == (done.id, "ORDER_PLACED", "shop")
    assert [*event.resources] == [OF_ANN]
    assert event.detail["count"] == 2
    assert seen == ["common.User.bob/common.Note.n1"]


async def test_who_comes_back_gets_what_happened_meanwhile_in_batches(served: Served) -> None:
    async with served.connect(user="ann") as channel:
        stream = EventStub(channel).Subscribe(event_pb2.SubscribeRequest())
        cursor = (await stream.read()).cursor
        stream.cancel()
        for _ in range(50):
            await EventStub(channel).Publish(order())
        again = EventStub(channel).Subscribe(event_pb2.SubscribeRequest(after=cursor))
        sizes: list[int] = []
        while sum(sizes) < 50:
            sizes.append(len((await again.read()).events))

    assert (sum(sizes), max(sizes)) == (50, 20)


@in_one_test(
    ("request_", "code"),
    [
        (order("common.User.bob/common.Note.n1"), "PERMISSION_DENIED"),
        (order(source="plans"), "INVALID_ARGUMENT"),
        (order(resources=[]), "INVALID_ARGUMENT"),
        (order(detail_type=""), "INVALID_ARGUMENT"),
        (order("nonsense"), "INVALID_ARGUMENT"),
    ],
)
async def test_what_may_not_be_published_is_refused(
    served: Served, request_: event_pb2.PublishRequest, code: str
) -> None:
    async with served.connect(user="ann") as channel:
        with pytest.raises(AioRpcError) as caught:
            await EventStub(channel).Publish(request_)

    assert caught.value.code().name == code


async def test_a_wrong_cursor_is_refused(served: Served) -> None:
    async with served.connect(user="ann") as channel:
        stream = EventStub(channel).Subscribe(event_pb2.SubscribeRequest(after="nonsense"))
        with pytest.raises(AioRpcError) as caught:
            await stream.read()

    assert caught.value.code() in (
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.OUT_OF_RANGE,
    )


async def test_a_stream_ends_when_the_server_does() -> None:
    settings = build_settings("event", events={"store": "memory"}, stop_timeout=0.1)
    async with serve(settings) as served:
        channel = served.connect()
        stream = await follow(channel)
        reading = asyncio.ensure_future(stream.read())
    (result,) = await asyncio.gather(reading, return_exceptions=True)
    await channel.aclose()

    assert not isinstance(result, event_pb2.SubscribeResponse) or not result.events


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
