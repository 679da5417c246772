"""What Gemini is asked, where, and with what key."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.google import GoogleAdapter
from copilot_runtime.adapters.google.auth import Authentication
from copilot_runtime.adapters.google.request import UNSIGNED, build_body
from copilot_runtime.api import Action, ChatRequest, Parameters
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ImageMessage,
    MediaPart,
    Message,
    ResultMessage,
    TextMessage,
    TextPart,
)
from copilot_runtime.base.errors import (
    AuthenticationFailed,
    ConfigurationFailed,
    MissingPackage,
    Misuse,
)
from tests.adapters.asking import HELLO, answer_to
from tests.adapters.contract.fakes import data
from tests.adapters.provider import Provider, streamed
from tests.adapters.test_google import PNG, STOP, chunk
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


def asked(
    *messages: Message,
    model: str = "gemini-3-flash",
    actions: list[Action] | None = None,
    extra: dict[str, Any] | None = None,
    **wishes: Any,
) -> dict[str, Any]:
    request = ChatRequest(
        messages=messages or [HELLO], actions=actions or [], parameters=Parameters(**wishes)
    )
    capabilities = CapabilityFilter("google", "Google", model, "refuse")
    return build_body(
        request, model, capabilities, context_tokens=100_000, extra=extra, origin="here"
    )


def call(id: str, *, parent: str | None = None, signed: str | None = None) -> Message:
    extra = {"encryptedValue": signed} if signed else None
    return ActionExecutionMessage(id=id, name=id, arguments="{}", parent_id=parent, extra=extra)


def result(id: str, text: str = "ok", error: str | None = None) -> Message:
    return ResultMessage(id=f"r-{id}", call_id=id, name=id, result=text, error=error)


def shapes(body: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return who says what kinds of parts."""
    return [(turn["role"], [*map("+".join, turn["parts"])]) for turn in body["contents"]]


def test_calls_made_at_once_stay_together_and_their_results_follow():
    body = asked(HELLO, call("a", parent="m"), result("a"), call("b", parent="m"), result("b"))
    assert shapes(body) == [
        ("user", ["text"]),
        ("model", ["functionCall+thoughtSignature", "functionCall"]),
        ("user", ["functionResponse", "functionResponse"]),
    ]


def test_a_signature_of_another_provider_stays_away():
    body = asked(HELLO, call("a", signed='there:{"thoughtSignature":"c2ln"}'), result("a"))
    assert body["contents"][1]["parts"][0]["thoughtSignature"] == UNSIGNED


def test_models_that_want_no_signature_are_sent_none():
    body = asked(HELLO, call("a"), result("a"), model="gemini-2.5-flash")
    assert "thoughtSignature" not in body["contents"][1]["parts"][0]


@in_one_test(
    ("came", "response"),
    [
        (result("a", "sunny"), {"output": "sunny"}),
        (result("a", '{"degrees":20}'), {"degrees": 20}),
        (result("a", "[1]"), {"output": "[1]"}),
        (result("a", "", "no such place"), {"error": "no such place"}),
    ],
)
def test_a_result_is_an_object(came: Message, response: dict[str, Any]):
    body = asked(HELLO, call("a"), came)
    sent = {"name": "a", "response": response, "id": "a"}
    assert body["contents"][2]["parts"] == [{"functionResponse": sent}]


def test_images_in_a_result_are_shown_to_the_model():
    image = {"type": "image", "data": PNG, "mimeType": "image/png"}
    mcp = json.dumps({"content": [{"type": "text", "text": "A map:"}, image]})
    body = asked(HELLO, call("a"), result("a", mcp))
    assert body["contents"][2]["parts"][0]["functionResponse"] == {
        "name": "a",
        "id": "a",
        "response": {"output": "A map:"},
        "parts": [{"inlineData": {"mimeType": "image/png", "data": PNG}}],
    }


def test_an_action_without_parameters_is_declared_without():
    body = asked(actions=[Action(name="stop", description="Stops.")])
    assert body["tools"] == [{"functionDeclarations": [{"name": "stop", "description": "Stops."}]}]


@in_one_test(
    ("model", "thinking"),
    [
        ("gemini-3-pro", {"thinkingLevel": "MEDIUM"}),
        ("gemini-flash-latest", {"thinkingLevel": "MEDIUM"}),
        ("models/gemini-2.5-pro", {"thinkingBudget": 8192}),
    ],
)
def test_effort_is_said_as_the_model_knows_it(model: str, thinking: dict[str, Any]):
    body = asked(model=model, reasoning_effort="medium")
    assert body["generationConfig"]["thinkingConfig"] == thinking


def test_a_model_that_does_not_think_is_not_asked_to():
    with pytest.raises(ConfigurationFailed, match="does not think"):
        asked(model="gemini-2.0-flash", reasoning_effort="low")


def test_what_the_application_adds_is_laid_over():
    settings = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}]
    extra = {
        "safetySettings": settings,
        "generationConfig": {"topK": 5},
        "tools": [{"googleSearch": {}}],
    }
    body = asked(temperature=0.0, extra=extra, actions=[Action(name="stop")])
    assert body["generationConfig"] == {"temperature": 0.0, "topK": 5}
    assert [[*tool] for tool in body["tools"]] == [["functionDeclarations"], ["googleSearch"]]
    assert body["safetySettings"] == settings


def attached(kind: Any, source: Any, value: str, mime_type: str | None = None) -> TextMessage:
    part = MediaPart(kind=kind, source=source, value=value, mime_type=mime_type)
    return TextMessage(id="u", role="user", content="", parts=[TextPart(text="This:"), part])


@in_one_test(
    ("message", "part"),
    [
        (
            attached("image", "data", PNG, "image/png"),
            {"inlineData": {"mimeType": "image/png", "data": PNG}},
        ),
        (
            attached("audio", "data", "QUJD", "audio/mpeg"),
            {"inlineData": {"mimeType": "audio/mpeg", "data": "QUJD"}},
        ),
        (
            attached("video", "url", "https://youtu.be/x"),
            {"fileData": {"fileUri": "https://youtu.be/x"}},
        ),
        (
            attached("document", "data", "QUJD", "application/pdf"),
            {"inlineData": {"mimeType": "application/pdf", "data": "QUJD"}},
        ),
        (
            attached("document", "data", "QUJD", "text/plain"),
            {"text": "Attached document:\n\nABC"},
        ),
        (
            attached("document", "url", "gs://b/a.pdf"),
            {"fileData": {"fileUri": "gs://b/a.pdf", "mimeType": "application/pdf"}},
        ),
        (
            attached("image", "id", "files/abc", "image/png"),
            {
                "fileData": {
                    "fileUri": "https://generativelanguage.googleapis.com/v1beta/files/abc",
                    "mimeType": "image/png",
                }
            },
        ),
    ],
)
def test_attachments_go_with_their_content_or_by_their_address(
    message: TextMessage, part: dict[str, Any]
):
    assert asked(message)["contents"][0]["parts"] == [{"text": "This:"}, part]


def test_a_file_gemini_cannot_read_is_refused_when_it_is_new():
    word = attached("document", "data", "QUJD", "application/msword")
    with pytest.raises(Misuse, match="application/msword"):
        asked(word)
    old = asked(word, HELLO)["contents"][0]["parts"]
    assert "left out" in old[1]["text"]


def test_an_image_the_model_made_stays_the_models():
    image = ImageMessage(id="i", role="assistant", format="png", bytes=PNG)
    body = asked(HELLO, image, TextMessage(id="u2", role="user", content="Bluer!"))
    assert [role for role, _ in shapes(body)] == ["user", "model", "user"]


async def requests_of(provider: Provider, **options: Any) -> tuple[str, dict[str, str]]:
    """Return the line and the headers of a request."""
    provider.answer(streamed(data(chunk({"text": "Hi"}, **STOP))))
    adapter = GoogleAdapter(base_url=provider.url, **options)
    await answer_to(adapter)
    await adapter.aclose()
    return provider.requests[-1].line.split()[1], provider.requests[-1].headers


async def test_vertex_is_asked_in_its_project_with_a_token(provider: Provider):
    path, headers = await requests_of(
        provider, model="gemini-3-pro", project="p1", location="eu", token=lambda: "t1"
    )
    assert path == (
        "/projects/p1/locations/eu/publishers/google/models/gemini-3-pro"
        ":streamGenerateContent?alt=sse"
    )
    assert headers["authorization"] == "bearer t1"
    assert "x-goog-api-key" not in headers


async def test_vertex_in_express_mode_is_asked_with_a_key(provider: Provider):
    path, headers = await requests_of(provider, model="gemini-3-pro", vertex=True, api_key="k1")
    assert path == "/publishers/google/models/gemini-3-pro:streamGenerateContent?alt=sse"
    assert headers["x-goog-api-key"] == "k1"


async def test_a_tuned_model_keeps_its_path(provider: Provider):
    path, _ = await requests_of(provider, model="tunedModels/mine", api_key="k1")
    assert path == "/v1beta/tunedModels/mine:streamGenerateContent?alt=sse"


class Credentials:
    """Like google-auth's: good once they were refreshed."""

    valid = False
    token = ""

    def refresh(self, request: Any) -> None:
        self.valid, self.token = True, "fresh"


async def test_credentials_are_refreshed_before_they_are_used(provider: Provider):
    pytest.importorskip("google.auth.transport.requests")
    _, headers = await requests_of(provider, project="p1", credentials=Credentials())
    assert headers["authorization"] == "bearer fresh"


async def test_without_a_key_nothing_is_asked(provider: Provider, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    adapter = GoogleAdapter(base_url=provider.url)
    with pytest.raises(ConfigurationFailed, match="no API key"):
        await answer_to(adapter)
    assert provider.requests == []


@in_one_test(
    ("options", "host"),
    [
        ({}, "https://generativelanguage.googleapis.com/v1beta/"),
        ({"project": "p"}, "https://aiplatform.googleapis.com/v1beta1/"),
        (
            {"project": "p", "location": "us-east5"},
            "https://us-east5-aiplatform.googleapis.com/v1beta1/",
        ),
        ({"project": "p", "location": "eu"}, "https://aiplatform.eu.rep.googleapis.com/v1beta1/"),
    ],
)
def test_each_service_has_its_address(options: dict[str, Any], host: str):
    assert Authentication("k", None, **options).build_url("m").startswith(host)


def test_a_base_url_that_is_none_is_told_at_once():
    with pytest.raises(ConfigurationFailed, match="not an address"):
        GoogleAdapter(base_url="gemini", api_key="k")


async def test_an_empty_token_is_told(provider: Provider):
    with pytest.raises(ConfigurationFailed, match="no token"):
        await requests_of(provider, project="p1", token=lambda: "")


async def test_without_application_default_credentials_the_way_out_is_said(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    pytest.importorskip("google.auth")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(ConfigurationFailed, match="no credentials") as caught:
        await requests_of(provider, project="p1")
    assert "pass token" in (caught.value.hint or "")


async def test_without_google_auth_it_is_asked_for(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "google.auth", None)
    with pytest.raises(MissingPackage, match="google-auth"):
        await requests_of(provider, project="p1")


class Refusing(Credentials):
    def refresh(self, request: Any) -> None:
        errors: Any = pytest.importorskip("google.auth.exceptions")
        raise errors.RefreshError("The account is gone.")


async def test_credentials_that_are_refused_are_an_authentication_error(provider: Provider):
    with pytest.raises(AuthenticationFailed) as caught:
        await requests_of(provider, project="p1", credentials=Refusing())
    assert "The account is gone." in (caught.value.hint or "")
