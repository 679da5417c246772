"""What is said of a service, in `config.json` and the environment."""

from typing import Any

from copilot_runtime.extensions.tools.catalog.grpc.options import load_service_config
from tests.conformance.copilot_ld.cases import Case


def answer(case: Case) -> Any:
    file = case.input["file"] or {}
    section = file.get("service", {}).get("agent", {})
    environ = case.input["env"]
    return load_service_config("agent", section, environ.get, case.input["defaults"])
