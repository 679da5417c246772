"""A server, started with a file of threads, whose model never answers: for a test that kills it."""

import sys

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.adapters.scripted import Gate
from copilot_runtime.extensions.webhooks import delivery
from copilot_runtime.extensions.webhooks.settings import WebhookSettings
from tests.programs import serve_program
from tests.wire_agui.server import PATH, Parrot

if __name__ == "__main__":
    delivery.LEASE = 0.0
    webhooks = WebhookSettings(secret=sys.argv[2], hosts=("127.0.0.1",))
    settings = Settings(threads=f"sqlite:{sys.argv[1]}", webhooks=webhooks)
    serve_program(CopilotRuntime(Parrot(gate=Gate()), settings=settings).app(path=PATH))
