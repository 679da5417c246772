"""Signatures of requests beside those of the algorithm in AWS's documents.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

from collections.abc import Mapping
from hashlib import sha256
from hmac import digest
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilot_runtime.adapters.bedrock.auth import sign_request
from tests.in_one_test import in_one_test

HOST = "https://bedrock-runtime.eu-west-1.amazonaws.com"
credentials: Any = pytest.importorskip("botocore.credentials")
PLAIN = credentials.Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
TEMPORARY = credentials.Credentials("AKIDEXAMPLE", "secret", "a token")


def signature_by_hand(url: str, body: bytes, headers: Mapping[str, str], secret: str) -> str:
    """Return the signature of a POST, all of whose headers are signed."""
    parts = urlsplit(url)
    whole = {**headers, "host": parts.netloc.removesuffix(":443")}
    names = sorted(whole)
    request = "\n".join(
        [
            "POST",
            quote(parts.path, safe="/~") or "/",
            "",
            *(f"{name}:{' '.join(whole[name].split())}" for name in names),
            "",
            ";".join(names),
            sha256(body).hexdigest(),
        ]
    )
    time = headers["x-amz-date"]
    scope = (time[:8], "eu-west-1", "bedrock", "aws4_request")
    text = "\n".join(
        ["AWS4-HMAC-SHA256", time, "/".join(scope), sha256(request.encode()).hexdigest()]
    )
    key = f"AWS4{secret}".encode()
    for part in (*scope, text):
        key = digest(key, part.encode(), "sha256")
    return key.hex()


def check(url: str, body: bytes, headers: Mapping[str, str], who: Any) -> None:
    signed = sign_request(url, body, headers, who, "eu-west-1")
    authorization = signed.pop("authorization")
    names = ";".join(sorted([*signed, "host"]))
    assert f"Credential=AKIDEXAMPLE/{signed['x-amz-date'][:8]}/eu-west-1/bedrock/" in authorization
    assert f"SignedHeaders={names}," in authorization
    expected = signature_by_hand(url, body, signed, who.secret_key)
    assert authorization.endswith(f"Signature={expected}")


@in_one_test("who", [PLAIN, TEMPORARY])
@in_one_test(
    "path",
    [
        "/model/amazon.nova-lite-v1%3A0/converse-stream",
        "/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Ainference-profile%2Feu.x-v1%3A0/converse-stream",
        "/model/a:b/with~tilde/converse-stream",
        "/",
        "",
    ],
)
def test_a_request_is_signed_as_it_is_sent(who: Any, path: str):
    check(
        HOST + path, b"{}", {"content-type": "application/json", "x-extra": "  two   words "}, who
    )


@given(st.binary(max_size=200), st.sampled_from([HOST, f"{HOST}:443", f"{HOST}:8443"]))
def test_every_body_is_signed(body: bytes, host: str):
    check(f"{host}/model/m/converse-stream", body, {}, PLAIN)
