"""Does the load client notice what it must? Serves it good and broken streams, made by hand.

By hand: `python -m benchmarks.streaming.selftest`.
"""

import asyncio
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.streaming.clients import AGUI, OPENAI, Client
from benchmarks.streaming.load import Destination, Load, send
from benchmarks.streaming.mock_upstream import now_us

_HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
_CHUNKS = 5
_BYTES_PER_PART = 7


@dataclass(frozen=True, slots=True)
class Trial:
    """A response, and a part of the problem that it must be reported as ("": no problem)."""

    name: str
    response: bytes
    problem: str = ""
    byte_by_byte: bool = False
    client: Client = OPENAI


def main() -> int:
    """Run all trials, print a line for each; returns how many went wrong."""
    return asyncio.run(_run([*_trials(), *_agui_trials()]))


async def _run(trials: Iterable[Trial]) -> int:
    wrong = 0
    for trial in trials:
        problem = await _problem_of(trial)
        as_wanted = trial.problem in problem if trial.problem else not problem
        wrong += not as_wanted
        print(f"selftest {'ok ' if as_wanted else 'BAD'} {trial.name}: {problem or '-'}")
    return wrong


async def _problem_of(trial: Trial) -> str:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        step = 1 if trial.byte_by_byte else max(1, len(trial.response))
        for at in range(0, len(trial.response), step):
            writer.write(trial.response[at : at + step])
            await writer.drain()
        writer.write_eof()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        destination = Destination(client=trial.client, url=f"http://127.0.0.1:{port}/x")
        outcome = await send(Load(streams=1, chunks=_CHUNKS, timeout_s=5), destination)
    if outcome.problems:
        return outcome.problems[0]
    return "" if outcome.completed == 1 else "no chat was completed"


def _trials() -> list[Trial]:
    whole, end = _events(0, 1, 2, 3, 4), _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
    failure = _chunk(b'data: {"type":"RUN_ERROR","message":"x"}\n\n')
    together = b"".join(whole)
    parts = range(0, len(together), _BYTES_PER_PART)
    split = [together[at : at + _BYTES_PER_PART] for at in parts]
    return [
        Trial("whole", _HEAD + _chunks(whole) + end),
        Trial("one byte per write", _HEAD + _chunks(whole) + end, byte_by_byte=True),
        Trial("tokens split over chunks", _HEAD + _chunks(split) + end),
        Trial("all in one chunk", _HEAD + _chunk(together) + end),
        Trial("one lost", _HEAD + _chunks(_events(0, 1, 3, 4)) + end, "out of order"),
        Trial("last lost", _HEAD + _chunks(_events(0, 1, 2, 3)) + end, "4 of 5"),
        Trial("swapped", _HEAD + _chunks(_events(0, 2, 1, 3, 4)) + end, "out of order"),
        Trial("one twice", _HEAD + _chunks(_events(0, 1, 1, 2, 3, 4)) + end, "out of order"),
        Trial("no end mark", _HEAD + _chunks(whole) + b"0\r\n\r\n", "no end marker"),
        Trial("cut", _HEAD + _chunks(whole[:3]), "closed early"),
        Trial("error event", _HEAD + _chunks(whole) + failure + end, "error in stream"),
        Trial("error", b"HTTP/1.1 500 X\r\ncontent-length: 4\r\n\r\noops", "HTTP 500"),
        Trial("no answer", b"", "closed early"),
    ]


def _agui_trials() -> list[Trial]:
    ids = '"threadId":"t","runId":"r"'
    started, finished = f'"RUN_STARTED",{ids}', f'"RUN_FINISHED",{ids}'
    opened, closed = '"TEXT_MESSAGE_START","messageId":"m"', '"TEXT_MESSAGE_END","messageId":"m"'
    return [
        _agui_trial("whole", [started, opened], [closed, finished]),
        _agui_trial("no start of the run", [opened], [closed, finished], "begins with"),
        _agui_trial("no start of the text", [started], [closed, finished], "out of place"),
        _agui_trial("no end of the text", [started, opened], [finished], "left open"),
        _agui_trial("two ends", [started, opened], [closed, closed, finished], "out of place"),
        _agui_trial("no end of the run", [started, opened], [closed], "no end marker"),
        _agui_trial("text after the end", [started], [finished, opened], "ends with"),
        _agui_trial("error", [started, opened], ['"RUN_ERROR","message":"x"'], "error in stream"),
    ]


def _agui_trial(name: str, before: list[str], after: list[str], problem: str = "") -> Trial:
    content = '"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"~%06d:%012d~"'
    chunks = [content % (number, now_us()) for number in range(_CHUNKS)]
    events = [f'data: {{"type":{event}}}\n\n'.encode() for event in [*before, *chunks, *after]]
    response = _HEAD + _chunks(events) + b"0\r\n\r\n"
    return Trial(f"AG-UI, {name}", response, problem, client=AGUI)


def _events(*numbers: int) -> list[bytes]:
    return [b'data: {"x":"~%06d:%012d~"}\n\n' % (number, now_us()) for number in numbers]


def _chunks(parts: Iterable[bytes]) -> bytes:
    return b"".join(_chunk(part) for part in parts)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


if __name__ == "__main__":
    sys.exit(main())
