"""A provider that says the same to every question: `python -m benchmarks.adapters.server SHAPE N`.

It is a process of its own, so that its work is not counted. It prints its port.
"""

import asyncio
import contextlib
import re
import sys

from benchmarks.adapters.shapes import SHAPES

PER_WRITE = 40
"""Chunks that are sent at once."""

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_HEAD = "HTTP/1.1 200 OK\r\ncontent-type: {}\r\ntransfer-encoding: chunked\r\n\r\n"


async def main(shape: str, chunks: int) -> None:
    """Answer until killed."""
    frames = list(SHAPES[shape](chunks))
    type = "application/vnd.amazon.eventstream" if shape == "bedrock" else "text/event-stream"
    writes = [b"".join(frames[at : at + PER_WRITE]) for at in range(0, len(frames), PER_WRITE)]
    pieces = [f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in writes]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                await reader.readexactly(int(length[1]) if length else 0)
                writer.write(_HEAD.format(type).encode())
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                writer.write(b"0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
