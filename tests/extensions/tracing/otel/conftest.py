"""The provider of OpenTelemetry that a whole process has, for tests that set one."""

import pytest
from opentelemetry import trace
from opentelemetry.util._once import Once


@pytest.fixture
def no_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process have no provider, as when it starts, until the test sets one.

    Tracers that packages ask for when they are imported, such as that of `mcp`, keep the first
    provider that they find: here they look each time, and find none behind the test.
    """
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    lookup = vars(trace.ProxyTracer)["_tracer"]

    def find_anew(tracer: trace.ProxyTracer) -> trace.Tracer:
        tracer._real_tracer = None  # pyright: ignore[reportPrivateUsage]
        try:
            return lookup.fget(tracer)
        finally:
            tracer._real_tracer = None  # pyright: ignore[reportPrivateUsage]

    monkeypatch.setattr(trace.ProxyTracer, "_tracer", property(find_anew))
