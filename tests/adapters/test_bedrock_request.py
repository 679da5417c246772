"""What Bedrock is asked, where, and who asks."""

import sys
from pathlib import Path
from threading import current_thread, main_thread
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from copilot_runtime.adapters.bedrock import BedrockAdapter
from copilot_runtime.adapters.bedrock.auth import Authentication
from copilot_runtime.adapters.bedrock.request import build_body
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.api import Action, ChatRequest, Parameters
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ImageMessage,
    MediaPart,
    Message,
    ReasoningMessage,
    ResultMessage,
    TextMessage,
    TextPart,
)
from copilot_runtime.base.errors import ConfigurationFailed, MissingPackage, Misuse
from tests.adapters.asking import HELLO, answer_to
from tests.adapters.provider import Provider
from tests.adapters.test_bedrock import COUNTS, STOP, answered, delta
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

NOVA = "amazon.nova-lite-v1:0"
SONNET_4_5 = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
OPUS_4_6 = "global.anthropic.claude-opus-4-6-v1"
SET = Action(name="set", parameters={"type": "object", "properties": {"color": {}}})
PNG = "iVBORw0KGgo="


def asked(
    *messages: Message, model: str = NOVA, actions: list[Action] | None = None, **wishes: Any
) -> dict[str, Any]:
    """Return the body; a wish that the model does not take is refused."""
    request = ChatRequest(
        messages=messages or [HELLO],
        actions=[SET] if actions is None else actions,
        parameters=Parameters(**wishes),
    )
    return build_body(
        request,
        model,
        CapabilityFilter("bedrock", "Bedrock", model, "refuse"),
        context_tokens=9_000,
        origin="here",
    )


def call(id: str, parent: str | None = None) -> Message:
    return ActionExecutionMessage(id=id, name="set", arguments='{"color":"red"}', parent_id=parent)


def result(id: str, text: str = "ok", error: str | None = None) -> Message:
    return ResultMessage(id=f"r-{id}", call_id=id, name="set", result=text, error=error)


def kinds(body: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return who says what kinds of blocks."""
    return [(turn["role"], [*map("+".join, turn["content"])]) for turn in body["messages"]]


@in_one_test("without", [{"actions": []}, {"tool_choice": "none"}])
def test_calls_are_texts_where_the_model_has_no_tools(without: dict[str, Any]):
    body = asked(HELLO, call("a"), result("a"), **without)
    assert "toolConfig" not in body
    assert body["messages"][1:] == [
        {"role": "assistant", "content": [{"text": '[Called set with {"color":"red"}]'}]},
        {"role": "user", "content": [{"text": "[set returned: ok]"}]},
    ]


def test_ids_of_other_providers_become_ids_that_bedrock_takes():
    long = "call_" + "x" * 80
    body = asked(HELLO, call(long), result(long))
    used = body["messages"][1]["content"][0]["toolUse"]["toolUseId"]
    assert body["messages"][2]["content"][0]["toolResult"]["toolUseId"] == used
    assert len(used) == 64


def test_a_failed_call_with_an_image_is_none_to_the_api():
    image = '[{"type":"image","data":"aGk=","mimeType":"image/png"}]'
    body = asked(HELLO, call("a"), result("a", image, "No such color."))
    assert "status" not in body["messages"][2]["content"][0]["toolResult"]


def test_a_failed_call_is_told_to_models_that_know_of_failures():
    failed = result("a", "", "No such color.")
    content = [{"text": "Error: No such color."}]
    told = asked(HELLO, call("a"), failed)["messages"][2]["content"][0]["toolResult"]
    assert told == {"toolUseId": "a", "content": content, "status": "error"}
    llama = asked(HELLO, call("a"), failed, model="us.meta.llama3-3-70b-instruct-v1:0")
    assert "status" not in llama["messages"][2]["content"][0]["toolResult"]


def test_images_in_a_result_are_shown_to_the_model():
    image = {"type": "image", "data": PNG, "mimeType": "image/png"}
    mcp = orjson.dumps({"content": [{"type": "text", "text": "A map:"}, image]}).decode()
    body = asked(HELLO, call("a"), result("a", mcp))
    assert body["messages"][2]["content"][0]["toolResult"]["content"] == [
        {"text": "A map:"},
        {"image": {"format": "png", "source": {"bytes": PNG}}},
    ]


def test_an_empty_result_has_a_word():
    body = asked(HELLO, call("a"), ResultMessage(id="r", call_id="a", name="set", result=" "))
    assert body["messages"][2]["content"][0]["toolResult"]["content"] == [{"text": "(empty)"}]


@in_one_test(
    ("signature", "content"),
    [
        ('here:{"signature":"c2ln"}', {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}),
        ('here:{"redactedContent":"c2Vj"}', {"redactedContent": "c2Vj"}),
    ],
)
def test_a_thought_goes_back_as_it_came(signature: str, content: dict[str, Any]):
    thought = ReasoningMessage(id="t", content="Hm.", signature=signature)
    body = asked(HELLO, thought, call("a"), result("a"), model=SONNET_4_5)
    assert body["messages"][1]["content"][0] == {"reasoningContent": content}


@in_one_test(
    ("model", "effort", "fields"),
    [
        (OPUS_4_6, "low", {"thinking": {"type": "adaptive", "display": "summarized"}}),
        (SONNET_4_5, None, {"thinking": {"type": "enabled", "budget_tokens": 2_048}}),
        ("openai.gpt-oss-120b-1:0", None, {"reasoning_effort": "low"}),
        (
            "us.amazon.nova-2-lite-v1:0",
            None,
            {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}},
        ),
        ("arn:aws:bedrock:eu-west-1:1:application-inference-profile/abc123", "low", None),
    ],
)
def test_effort_is_said_as_the_model_knows_it(
    model: str, effort: str | None, fields: dict[str, Any] | None
):
    body = asked(model=model, reasoning_effort="low")
    assert body.get("outputConfig", {}).get("effort") == effort
    assert body.get("additionalModelRequestFields") == fields


def test_a_claude_that_thinks_has_room_for_its_thoughts():
    assert asked(model=SONNET_4_5, reasoning_effort="high")["inferenceConfig"] == {
        "maxTokens": 32_000
    }


def test_a_claude_does_not_begin_to_think_in_the_middle_of_its_calls():
    body = asked(HELLO, call("a"), result("a"), model=SONNET_4_5, reasoning_effort="low")
    assert "additionalModelRequestFields" not in body


@in_one_test(
    ("model", "wishes", "why"),
    [
        ("deepseek.r1-v1:0", {"reasoning_effort": "low"}, "no setting for this model's thoughts"),
        (NOVA, {"seed": 1}, "no seed"),
        (OPUS_4_6, {"reasoning_effort": "low", "temperature": 0.5}, "none while it thinks"),
        (SONNET_4_5, {"temperature": 0.5, "top_p": 0.5}, "not both"),
        ("anthropic.claude-opus-4-7", {"temperature": 0.5}, "no sampling parameters"),
    ],
)
def test_what_a_model_does_not_take_is_told(model: str, wishes: dict[str, Any], why: str):
    with pytest.raises(ConfigurationFailed, match=why):
        asked(model=model, **wishes)


def attached(*parts: tuple[Any, Any, str, str | None], filename: str | None = None) -> TextMessage:
    return TextMessage(
        id="u",
        role="user",
        content="",
        parts=[
            MediaPart(kind=kind, source=source, value=value, mime_type=type, filename=filename)
            for kind, source, value, type in parts
        ],
    )


@in_one_test(
    ("part", "block"),
    [
        (
            ("image", "data", "UklGRgAAAABXRUJQ", "image/webp"),
            {"image": {"format": "webp", "source": {"bytes": "UklGRgAAAABXRUJQ"}}},
        ),
        (
            ("image", "url", "s3://b/a.jpg", None),
            {"image": {"format": "jpeg", "source": {"s3Location": {"uri": "s3://b/a.jpg"}}}},
        ),
        (
            ("video", "data", "QUJD", "video/quicktime"),
            {"video": {"format": "mov", "source": {"bytes": "QUJD"}}},
        ),
        (
            ("audio", "data", "QUJD", "audio/mpeg"),
            {"audio": {"format": "mp3", "source": {"bytes": "QUJD"}}},
        ),
        (("document", "data", "QUJD", "text/markdown"), {"text": "Attached document:\n\nABC"}),
    ],
)
def test_attachments_go_with_their_content_or_from_s3(part: Any, block: dict[str, Any]):
    assert asked(attached(part))["messages"][0]["content"] == [block]


def test_documents_have_names_of_their_own_and_words_beside_them():
    pdf = ("document", "data", "QUJD", "application/pdf")
    content = asked(attached(pdf, pdf, filename="Plan: {one}.pdf"))["messages"][0]["content"]
    assert [block["document"]["name"] for block in content[:2]] == ["Plan one", "Plan one 2"]
    assert content[2:] == [{"text": "See the attached document."}]


@in_one_test(
    "part",
    [("image", "url", "https://example.com/a.png", None), ("video", "data", "QUJD", "video/avi")],
)
def test_what_bedrock_cannot_read_is_refused_when_it_is_new(part: Any):
    with pytest.raises(Misuse, match="Bedrock takes"):
        asked(attached(part))
    old = asked(attached(part), TextMessage(id="u2", role="user", content="And now?"))
    assert "left out" in old["messages"][0]["content"][0]["text"]


def test_an_image_of_the_model_is_shown_in_the_users_turn():
    image = ImageMessage(id="i", role="assistant", format="png", bytes=PNG)
    assert kinds(asked(HELLO, image)) == [("user", ["text", "image"])]


async def request_of(provider: Provider, **options: Any) -> tuple[str, dict[str, str]]:
    """Return path and headers of a request."""
    provider.answer(answered(delta(0, {"text": "Hi"}), STOP, COUNTS))
    usual: dict[str, Any] = {"base_url": provider.url, "region": "eu-west-1"}
    adapter = BedrockAdapter(**{**usual, **options})
    await answer_to(adapter)
    await adapter.aclose()
    return provider.requests[-1].line.split()[1], provider.requests[-1].headers


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BEARER_TOKEN_BEDROCK", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


async def test_an_arn_is_one_part_of_the_path(provider: Provider):
    arn = "arn:aws:bedrock:eu-west-1:1:inference-profile/eu.amazon.nova-lite-v1:0"
    path, _ = await request_of(provider, model=arn, api_key="k")
    assert path == (
        "/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Ainference-profile"
        "%2Feu.amazon.nova-lite-v1%3A0/converse-stream"
    )


async def test_a_key_in_the_environment_comes_before_credentials(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-key")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert (await request_of(provider))[1]["authorization"] == "bearer bedrock-key"


async def test_credentials_in_the_environment_sign(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "for-a-while")
    _, headers = await request_of(provider)
    assert headers["authorization"].startswith("aws4-hmac-sha256 credential=akid/")
    assert "x-amz-security-token" in headers["authorization"]
    assert headers["x-amz-security-token"] == "for-a-while"


async def test_a_session_of_boto3_says_who_asks_and_where(provider: Provider):
    boto3: Any = pytest.importorskip("boto3")
    session = boto3.Session(
        aws_access_key_id="AKID2", aws_secret_access_key="secret", region_name="us-west-2"
    )
    _, headers = await request_of(provider, session=session, region=None)
    assert "credential=akid2/" in headers["authorization"]
    assert "/us-west-2/bedrock/" in headers["authorization"]


async def test_a_session_of_botocore_does_so_too(provider: Provider):
    botocore: Any = pytest.importorskip("botocore.session")
    session = botocore.Session()
    session.set_credentials("AKID3", "secret")
    session.set_config_variable("region", "us-east-2")
    _, headers = await request_of(provider, session=session, region=None)
    assert "credential=akid3/" in headers["authorization"]
    assert "/us-east-2/bedrock/" in headers["authorization"]


async def test_a_key_may_be_fetched_for_each_request(provider: Provider):
    async def fresh() -> str:
        return "fresh\n"

    assert (await request_of(provider, api_key=fresh))[1]["authorization"] == "bearer fresh"


async def test_what_no_key_can_be_is_not_sent(provider: Provider):
    with pytest.raises(ConfigurationFailed, match="contains invalid characters"):
        await request_of(provider, api_key="k\u2026")
    assert provider.requests == []


class Renewing:
    """Credentials as botocore has them for roles: they fetch themselves anew."""

    def refresh_needed(self) -> bool:
        return True

    def get_frozen_credentials(self) -> Any:
        assert current_thread() is not main_thread(), "it would hold up the event loop"
        return SimpleNamespace(access_key="NEW", secret_key="secret", token="t2")


async def test_credentials_of_a_role_are_renewed_before_they_are_used(provider: Provider):
    session = SimpleNamespace(region_name="eu-west-1", get_credentials=Renewing)
    _, headers = await request_of(provider, session=session)
    assert "credential=new/" in headers["authorization"]
    assert headers["x-amz-security-token"] == "t2"


async def test_a_session_without_credentials_is_told(provider: Provider):
    session = SimpleNamespace(region_name="eu-west-1", get_credentials=lambda: None)
    with pytest.raises(ConfigurationFailed, match="no credentials"):
        await request_of(provider, session=session)
    assert provider.requests == []


async def test_without_a_region_nothing_is_asked(provider: Provider):
    adapter = BedrockAdapter(api_key="k")
    with pytest.raises(ConfigurationFailed, match="no region"):
        await answer_to(adapter)


def test_half_a_key_is_told_at_once():
    with pytest.raises(ConfigurationFailed, match="both or none"):
        BedrockAdapter(access_key="AKID")


def test_a_part_that_says_nothing_is_left_out():
    parts = [TextPart(text="  "), MediaPart(kind="image", source="data", value=PNG)]
    message = TextMessage(id="u", role="user", content="", parts=parts)
    assert kinds(asked(message)) == [("user", ["image"])]


async def test_a_profile_of_botocores_is_found_where_nothing_else_is_said(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    pytest.importorskip("botocore")
    profile = tmp_path / "credentials"
    profile.write_text("[mine]\naws_access_key_id = AKID4\naws_secret_access_key = secret\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profile))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    assert "credential=akid4/" in (await request_of(provider))[1]["authorization"]


def test_without_botocore_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(MissingPackage, match=r"pip install 'copilot-runtime\[bedrock\]'"):
        BedrockAdapter(api_key="k")


async def test_a_profile_that_nobody_made_is_told(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("botocore")
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(ConfigurationFailed, match="no credentials") as caught:
        await request_of(provider)
    assert "(nobody)" in (caught.value.hint or "")
    assert "AWS_ACCESS_KEY_ID" in (caught.value.hint or "")


@in_one_test(
    ("region", "host"),
    [
        ("eu-west-1", "https://bedrock-runtime.eu-west-1.amazonaws.com/"),
        ("cn-north-1", "https://bedrock-runtime.cn-north-1.amazonaws.com.cn/"),
        (None, "https://bedrock-runtime.us-east-1.amazonaws.com/"),
    ],
)
def test_each_region_has_its_address(region: str | None, host: str):
    authentication = Authentication(region=region, api_key="k")
    arn = "arn:aws:bedrock:us-east-1:1:inference-profile/us.amazon.nova-lite-v1:0"
    assert authentication.build_url(arn).startswith(host)


def test_a_base_url_that_is_none_is_told_at_once():
    with pytest.raises(ConfigurationFailed, match="not an address"):
        BedrockAdapter(base_url="eu-west-1")


def test_thoughts_stay_away_from_models_that_bind_them():
    thought = ReasoningMessage(id="t", content="Hm.", signature='here:{"signature":"c2ln"}')
    body = asked(HELLO, thought, call("a"), result("a"), model="anthropic.claude-opus-5-5-v1:0")
    assert kinds(body)[1] == ("assistant", ["toolUse"])


def test_instructions_stand_apart():
    body = asked(TextMessage(id="s", role="developer", content="Be short."), HELLO)
    assert body["system"] == [{"text": "Be short."}]
    assert kinds(body) == [("user", ["text"])]
