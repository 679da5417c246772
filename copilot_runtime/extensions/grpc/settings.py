"""The settings section `grpc`."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from copilot_runtime.config.section import SecondsOrNone, Section, Words

_ADDRESS = re.compile(r"unix:.+|(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>\d{1,5})")


def _check_address(text: str) -> str:
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"] or 0) > 65535:
        raise ValueError(f"{text!r} is not an address: write host:port, [::1]:port or unix:/path")
    return text


class GrpcSettings(Section):
    """Services that other programs call over gRPC."""

    services: Words = Field(
        default=(),
        description="Services to offer: agent, context, event, graph, llm, memory, plan, tool, "
        "trace, vector, or your own as module:Class or folder/file.py:Class.",
    )
    address: Annotated[str, AfterValidator(_check_address)] = Field(
        default="127.0.0.1:50051",
        description="Address of the server: host:port or unix:/path.",
    )
    certificate: str = Field(default="", description="PEM file of the certificate. Empty: no TLS.")
    key: str = Field(default="", description="PEM file of its key.", repr=False)
    client_ca: str = Field(
        default="",
        description="PEM file of the CA of clients' certificates (mTLS).",
    )
    reflection: bool = Field(default=True, description="Whether server reflection is offered.")
    max_calls: Annotated[int, Field(gt=0)] = Field(
        default=1000, description="Most concurrent calls."
    )
    timeout: SecondsOrNone = Field(
        default=300,
        description="Seconds for a call without a stream, unless the client's deadline is "
        "shorter; 0 for no limit.",
    )

    @model_validator(mode="after")
    def _fit(self) -> "GrpcSettings":
        if bool(self.certificate) != bool(self.key):
            raise ValueError("a certificate needs its key, and a key its certificate")
        if self.client_ca and not self.certificate:
            raise ValueError("grpc.client_ca needs grpc.certificate and grpc.key")
        return self

    @property
    def is_local(self) -> bool:
        """True if only programs on this machine can reach the services."""
        if self.address.startswith("unix:"):
            return True
        host = self.address.rpartition(":")[0].strip("[]")
        return host in ("localhost", "::1") or host.startswith("127.")
