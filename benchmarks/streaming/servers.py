"""A server that is measured, running, and the mock that all of them stream from."""

import json
import socket
import sys
import time
import urllib.request

from benchmarks.streaming import load
from benchmarks.streaming.load import Destination, Load
from benchmarks.streaming.processes import Process, family, free_port
from benchmarks.streaming.suite import Target

_READY_S = 90
_ONE_CHAT = Load(streams=1, chunks=1, timeout_s=30)
_WARM_UP = Load(streams=8, chunks=400, timeout_s=60)


class NotReadyError(RuntimeError):
    """A server ended, or gave no complete answer in time."""


class Mock:
    """The mock upstream in a process of its own."""

    def __init__(self) -> None:
        self.host_port = f"127.0.0.1:{free_port()}"
        port = self.host_port.split(":")[1]
        module = "benchmarks.streaming.mock_upstream"
        command = [sys.executable, "-m", module, "--port", port]
        # like the load client: one of the two instruments, not a server
        self._process = Process(command, {}, own_session=False)

    @property
    def url(self) -> str:
        return f"http://{self.host_port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        self._process.start()
        wait_for_port(self._process, int(self.host_port.split(":")[1]))

    def stop(self) -> None:
        self._process.stop()

    def streams(self) -> dict[str, dict[str, int]]:
        """Return the moments (microseconds) of every stream since `forget`."""
        return json.loads(self._request("GET"))["streams"]

    def forget(self) -> None:
        self._request("DELETE")

    def _request(self, method: str) -> bytes:
        request = urllib.request.Request(f"{self.url}/__stats", method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=20) as answer:
            return answer.read()


class Server:
    """One target, running."""

    def __init__(self, name: str, target: Target, mock: Mock) -> None:
        self.name = name
        self.target = target
        self.mock = mock
        self._port = free_port()
        self._process = Process(
            [word.replace("{PORT}", str(self._port)) for word in self.target.command],
            {"PORT": str(self._port), "MOCK_URL": mock.url, "MOCK_HOSTPORT": mock.host_port},
        )

    @property
    def has_process(self) -> bool:
        return bool(self.target.command)

    @property
    def destination(self) -> Destination:
        base = f"http://127.0.0.1:{self._port}" if self.has_process else self.mock.url
        pid = self._process.pid if self.has_process else self.mock.pid
        url = base + self.target.path
        return Destination(client=self.target.client, url=url, pid=pid, mock_pid=self.mock.pid)

    def start(self) -> tuple[float, float]:
        """Start, and return the seconds until it listened and until its first whole answer."""
        if not self.has_process:
            return 0, 0
        began = time.monotonic()
        self._process.start()
        wait_for_port(self._process, self._port)
        listening_s = time.monotonic() - began
        while True:
            outcome = load.run(_ONE_CHAT, self.destination)
            passed_s = time.monotonic() - began
            if outcome.completed:
                return listening_s, passed_s - load.SETTLE_S
            if passed_s > _READY_S:
                raise NotReadyError(f"{self.name}: {outcome.problems} {self._process.log_tail()}")

    def warm_up(self) -> None:
        for _ in range(2):
            load.run(_WARM_UP, self.destination)

    def family(self) -> list[int]:
        return family(self.destination.pid)

    def stop(self) -> None:
        self._process.stop()


def wait_for_port(process: Process, port: int) -> None:
    """Return once somebody listens. Raises `NotReadyError` when nobody will."""
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        if not process.alive():
            raise NotReadyError(f"it ended at once: {process.log_tail()}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.01)
        else:
            return
    raise NotReadyError(f"it does not listen: {process.log_tail()}")
