"""The setting `bus` names the class that has the logs of runs."""

from pathlib import Path
from typing import cast

import pytest

from copilot_runtime import CopilotRuntime
from copilot_runtime.base.errors import UnknownName
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.threads.recorder import Recorder
from copilot_runtime.threads.run_log import MemoryBus


def bus_of(runtime: CopilotRuntime) -> object:
    return cast("Recorder", runtime.runtime.bus).inner


def test_the_bus_is_in_memory_unless_another_is_named() -> None:
    assert isinstance(bus_of(CopilotRuntime(settings=Settings(threads="memory"))), MemoryBus)


def test_an_unknown_bus_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownName) as caught:
        CopilotRuntime(settings=Settings(threads="memory", bus="memroy"))

    assert caught.value.message == ("No bus named 'memroy'. Known: memory. Did you mean 'memory'?")


def test_a_package_adds_a_bus_by_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[copilot_runtime.bus]\nacme = acme_bus:AcmeBus\n")
    (tmp_path / "acme_bus.py").write_text(
        "from copilot_runtime.threads.run_log import MemoryBus\nclass AcmeBus(MemoryBus): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = Settings(threads="memory", bus="acme", max_events_per_run=7, log_ttl=8)
    bus = bus_of(CopilotRuntime(settings=settings))

    assert (type(bus).__name__, isinstance(bus, MemoryBus)) == ("AcmeBus", True)
    assert isinstance(bus, MemoryBus)
    assert (bus.max_events, bus.ttl) == (7, 8)
