"""The worker process that evaluates SPARQL queries over one visible part of the graph.

It reads triples from its standard input, and then forks for every query: the child evaluates it
with a copy of the graph that costs nothing, or with the files of one on disk, and within limits
that the system itself enforces. It can open neither files nor connections, and is ended when its
time is up, whatever it does. What may not be seen never was in this process, and no key or
password either.

The file is run by its path and imports little of ours.
"""

import gc
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Iterable
from typing import Any

from pyoxigraph import DefaultGraph, QueryBoolean, QuerySolutions, RdfFormat, Store, Triple

from copilot_runtime.base.processes import limit_process

COMMAND = struct.Struct("!cI")
"""A command to the worker: `q` to run the query of the attached connection, `k` to kill
the process with the given identifier."""
LENGTH = struct.Struct("!I")


def main(control: socket.socket, directory: str) -> None:
    """Evaluate queries until the other end of the control connection is closed.

    With a directory, the graph is there and not in memory.
    """
    store = None if directory else load("")
    if directory and not load_in_child(directory):
        return
    gc.collect()
    gc.freeze()
    children: set[int] = set()
    control.sendall(b"r")
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, COMMAND.size, 1)
        while children and (ended := os.waitpid(-1, os.WNOHANG)[0]):
            children.discard(ended)
        if len(message) < COMMAND.size:
            break
        command, pid = COMMAND.unpack(message)
        if command == b"k":
            if pid in children:
                os.kill(pid, signal.SIGKILL)
            continue
        if not (pid := os.fork()):
            try:
                control.close()
                with socket.socket(fileno=descriptors[0]) as connection:
                    answer(Store.read_only(directory) if store is None else store, connection)
            finally:
                os._exit(0)
        children.add(pid)
        for descriptor in descriptors:
            os.close(descriptor)
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def load(directory: str) -> Store:
    """Return a store with the triples of the standard input."""
    store = Store(directory or None)
    store.bulk_load(input=sys.stdin.buffer, format=RdfFormat.N_TRIPLES)
    return store


def load_in_child(directory: str) -> bool:
    """Load into files. In another process, for a store on disk has threads, which do not fork."""
    if not (pid := os.fork()):
        load(directory).flush()
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def answer(store: Store, connection: socket.socket) -> None:
    """Evaluate the query of a connection, and write the result as lines of JSON."""
    output = connection.makefile("wb", buffering=1 << 16)

    def write(line: Any) -> None:
        output.write(json.dumps(line).encode() + b"\n")

    write({"pid": os.getpid()})
    output.flush()
    (length,) = LENGTH.unpack(connection.recv(LENGTH.size, socket.MSG_WAITALL))
    request = json.loads(connection.recv(length, socket.MSG_WAITALL))
    limit(request["seconds"], request["memory"])
    try:
        # there is one graph, whatever a query calls it
        found = store.query(
            request["query"],
            prefixes=request["prefixes"],
            default_graph=DefaultGraph(),
            named_graphs=[],
        )
        if isinstance(found, QueryBoolean):
            write({"boolean": bool(found), "cut": ""})
        else:
            if isinstance(found, QuerySolutions):
                write({"variables": [variable.value for variable in found.variables]})
            write({"cut": write_rows(found, request["rows"], request["bytes"], write)})
    except MemoryError:
        return
    except SyntaxError as error:
        write({"syntax": str(error)})
    except (OSError, ValueError) as error:
        write({"failure": str(error)})
    output.flush()


def write_rows(found: Iterable[Any], most_rows: int, most_bytes: int, write: Any) -> str:
    """Write solutions or triples, and return the limit that was reached, or an empty string."""
    size = 0
    for count, row in enumerate(found):
        texts = [None if term is None else text_of(term) for term in row]
        size += sum(len(text.encode()) for text in texts if text)
        if count >= most_rows:
            return "rows"
        if size > most_bytes:
            return "bytes"
        write(texts)
    return ""


def text_of(term: Any) -> str:
    """Return a term as N-Triples writes it."""
    return f"<<( {term} )>>" if isinstance(term, Triple) else str(term)


def limit(seconds: float, memory: int) -> None:
    """Set kernel limits of this process: time, memory, and no files or sockets."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))  # none at all would be for ever
    limit_process(memory=memory)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
