"""Our signatures beside botocore's."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilot_runtime.adapters.bedrock.signing import Credentials, signed

HOST = "https://bedrock-runtime.eu-west-1.amazonaws.com"
PLAIN = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
FOR_A_WHILE = Credentials("AKIDEXAMPLE", "secret", "a token")
auth: Any = pytest.importorskip("botocore.auth")
credentials: Any = pytest.importorskip("botocore.credentials")
awsrequest: Any = pytest.importorskip("botocore.awsrequest")


def by_botocore(
    url: str, body: bytes, headers: dict[str, str], who: Credentials
) -> tuple[str, datetime]:
    """Return the signature, and the time it is of."""
    request = awsrequest.AWSRequest("POST", url, data=body, headers=headers)
    known = credentials.Credentials(who.access_key, who.secret_key, who.token)
    auth.SigV4Auth(known, "bedrock", "eu-west-1").add_auth(request)
    time = datetime.strptime(request.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ")
    return request.headers["Authorization"], time.replace(tzinfo=UTC)


@pytest.mark.parametrize("who", [PLAIN, FOR_A_WHILE])
@pytest.mark.parametrize(
    "path",
    [
        "/model/amazon.nova-lite-v1%3A0/converse-stream",
        "/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Ainference-profile%2Feu.x-v1%3A0/converse-stream",
        "/model/a:b/with~tilde/converse-stream",
        "/",
        "",
    ],
)
def test_botocore_signs_the_same(who: Credentials, path: str):
    headers = {"content-type": "application/json", "x-extra": "  two   words "}
    theirs, at = by_botocore(HOST + path, b"{}", headers, who)
    ours = signed(HOST + path, b"{}", headers, who, region="eu-west-1", at=at)
    assert ours["authorization"] == theirs


@given(st.binary(max_size=200), st.sampled_from([HOST, f"{HOST}:443", f"{HOST}:8443"]))
def test_botocore_signs_every_body_the_same(body: bytes, host: str):
    theirs, at = by_botocore(f"{host}/model/m/converse-stream", body, {}, PLAIN)
    url = f"{host}/model/m/converse-stream"
    assert signed(url, body, {}, PLAIN, region="eu-west-1", at=at)["authorization"] == theirs


def test_a_secret_is_not_shown():
    assert "secret" not in repr(FOR_A_WHILE)
