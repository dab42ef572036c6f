"""A TCP server on loopback that answers each connection by a script."""

import contextlib
import socket
import struct
import threading
from dataclasses import dataclass
from typing import Self

# A connection carries one response. Without this header, a client can send its next request on it before it learns that
# the server has closed it.
CLOSE = "connection: close"
HEAD = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n{CLOSE}\r\n\r\n".encode()


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def event(number: int, name: str, data: str = "{}") -> bytes:
    return f"id: {number}\nevent: {name}\ndata: {data}\n\n".encode()


def stream(*events: bytes, complete: bool = False) -> bytes:
    """A response with these bytes as chunks; without its end if it is not complete."""
    return HEAD + b"".join(chunk(part) for part in events) + (b"0\r\n\r\n" if complete else b"")


def response(status: int, body: bytes = b"{}", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} S", "content-type: application/json", f"content-length: {len(body)}", CLOSE, *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass
class Answer:
    """What a connection gets.

    `end` is close, reset, hold, which waits until the client closes, or trickle, which sends until then.
    """

    data: bytes = b""
    end: str = "close"


class ScriptedServer:
    """Answers one request for each connection; `requests` are their bytes."""

    def __init__(self, *answers: Answer | bytes) -> None:
        self.requests: list[bytes] = []
        self.client_closed = threading.Event()
        self._answers = [Answer(answer) if isinstance(answer, bytes) else answer for answer in answers]
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._listener.fileno() >= 0:
            self._listener.shutdown(socket.SHUT_RDWR)  # Ends `accept`, if answers are left.
        self._thread.join()
        self._listener.close()

    def headers(self, name: str) -> list[str | None]:
        """The values of a header in the requests."""
        found: list[str | None] = []
        for request in self.requests:
            lines = request.split(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
            values = dict(line.split(": ", 1) for line in lines)
            found.append({key.lower(): value for key, value in values.items()}.get(name))
        return found

    def _run(self) -> None:
        for position, answer in enumerate(self._answers):
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if position == len(self._answers) - 1:
                self._listener.close()  # Connections beyond the script are refused.
            with connection, contextlib.suppress(ConnectionError):  # A client with a time limit can have given up.
                self.requests.append(_read_request(connection))
                connection.sendall(answer.data)
                if answer.end == "reset":
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                elif answer.end == "hold":
                    _wait_for_close(connection)
                    self.client_closed.set()
                elif answer.end == "trickle":
                    _trickle(connection)


def _trickle(connection: socket.socket) -> None:
    """Sends a few bytes, which can continue a head or a body, every few milliseconds."""
    connection.settimeout(0.02)
    closed = False
    while not closed:
        connection.sendall(b"a: b\r\n")
        with contextlib.suppress(TimeoutError):
            closed = not connection.recv(4096)


def _wait_for_close(connection: socket.socket) -> None:
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass  # It closed with bytes that it had not read.


def _receive(connection: socket.socket) -> bytes:
    received = connection.recv(65536)
    if not received:
        raise ConnectionError("the client closed the connection before its request was complete")
    return received


def _read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _receive(connection)
    head, body = data.split(b"\r\n\r\n", 1)
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
    while len(body) < int(lengths[0] if lengths else 0):
        body += _receive(connection)
    return head + b"\r\n\r\n" + body
