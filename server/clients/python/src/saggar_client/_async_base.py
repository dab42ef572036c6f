"""What clients have beside the operations: their options, and their end.

This file is also the source of `_base.py`, which `generator` derives from it.
"""

from types import TracebackType
from typing import Self

from ._async_transport import AsyncTransport
from ._retry import Limits


class AsyncBase:
    """The connections of a client. The end of a `with` block, or `aclose`, closes them.

    - `url`: the address of the server, such as `http://127.0.0.1:4100`.
    - `key`: an API key; operations that require none work without one.
    - `ca_file`: the certificates (PEM) of the authorities to trust for https, instead of those of the system.
    - `attempts`: the maximum number of attempts for a request that can be repeated.
    - `stream_attempts`: the maximum number of attempts in a row for a stream that makes no progress. The delays of 8
      add up to at least 30 seconds, which outlasts a restart of the server.
    - `connect_timeout`: the time limit for a connection, in seconds.
    - `response_timeout`: the time limit for a response that is not a stream, in seconds. `AsyncClient` applies it to
      the whole response. `Client` cannot interrupt a read: it applies it to each read of the head, and then to the
      whole body, which can exceed it by one read.
    - `stream_timeout`: the seconds without a byte after which a stream counts as lost; the server sends one each 15
      seconds.

    Raises ValueError for an invalid argument.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        ca_file: str | None = None,
        attempts: int = 4,
        stream_attempts: int = 8,
        connect_timeout: float = 10,
        response_timeout: float = 330,
        stream_timeout: float = 45,
    ) -> None:
        limits = Limits(attempts, stream_attempts, connect_timeout, response_timeout, stream_timeout)
        self._transport = AsyncTransport(url, key, ca_file, limits)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._transport.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes all connections."""
        await self._transport.aclose()
