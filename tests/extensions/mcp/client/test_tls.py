"""Whoever is asked by its address still has to prove that it has the name."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from mcp.server.transport_security import TransportSecuritySettings

from copilot_runtime.extensions.mcp.client import connect
from copilot_runtime.extensions.mcp.client.source import McpActions, McpAllowlist
from tests.extensions.mcp.client.conftest import Asked
from tests.extensions.mcp.client.servers import Served, build
from tests.extensions.mcp.client.test_named import named
from tests.wire_agui.server import serving

pytestmark = pytest.mark.anyio

NAME = "mcp.example"


@pytest.fixture
def certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Return a key and a certificate for NAME, which is trusted."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(key, SHA256())
    )
    files = {"ssl_keyfile": tmp_path / "key.pem", "ssl_certfile": tmp_path / "cert.pem"}
    plain = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    files["ssl_keyfile"].write_bytes(key.private_bytes(*plain))
    files["ssl_certfile"].write_bytes(certificate.public_bytes(Encoding.PEM))
    monkeypatch.setenv("SSL_CERT_FILE", str(files["ssl_certfile"]))
    return files


async def test_a_certificate_is_checked_against_the_name_and_not_the_address(
    certified: dict[str, Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def resolve_public_addresses(host: str, port: int) -> Sequence[str]:
        del host, port
        return ["127.0.0.1"]

    monkeypatch.setattr(connect, "resolve_public_addresses", resolve_public_addresses)
    open_to_all = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = build(Served()).streamable_http_app(transport_security=open_to_all)
    source = McpActions(McpAllowlist(bool))
    async with serving(app, **certified) as port:
        mine = await Asked(source).actions(named({"endpoint": f"https://{NAME}:{port}/mcp"}))
        other = await Asked(source).actions(named({"endpoint": f"https://other.example:{port}/"}))
        await source.aclose()

    assert ("mcpEcho" in mine, other) == (True, {})
    assert "certificate is not valid for 'other.example'" in caplog.text
