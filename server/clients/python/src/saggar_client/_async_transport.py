"""Sends requests, repeats them, and reads streams.

This file is also the source of `_transport.py`, which `generator` derives from it.
"""

import time
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Any, Self

import anyio
import httpx

from . import _request
from ._errors import ApiError, ConnectionFailed, SaggarError, api_error
from ._request import Request
from ._resume import Position
from ._retry import Limits, Retries
from ._sse import EventParser
from .types import Event


class AsyncEventStream:
    """The events of a stream. The request is sent when the iteration begins.

    The end of a `with` block, or `aclose`, closes the connection.
    """

    def __init__(self, events: AsyncGenerator[Event, None]) -> None:
        self._events = events

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        return await self._events.__anext__()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connection. The turn continues."""
        await self._events.aclose()


class AsyncTransport:
    """The connections to one server."""

    def __init__(self, url: str, key: str | None, ca_file: str | None, limits: Limits) -> None:
        self.url = _request.check_url(url)
        self._limits = limits
        self._http = httpx.AsyncClient(
            headers=_request.authorization(key),
            verify=_request.tls_context(ca_file),
            # Each stream has a connection; by default, the hundredth one would wait for the end of another.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def call(self, request: Request) -> httpx.Response:
        """Returns the response to a request with its body, or raises an error."""
        retries = Retries(self._limits.attempts)
        while True:
            try:
                return await self._call_once(request)
            except ApiError as error:
                delay = retries.delay_after(error)
            except httpx.RequestError as error:
                failure = self._failure(error)
                if not request.is_repeatable or isinstance(error, httpx.ReadTimeout):
                    raise failure from error
                delay = retries.delay_after(failure)
            await anyio.sleep(delay)

    async def _call_once(self, request: Request) -> httpx.Response:
        limit = self._limits.response_timeout
        end = time.monotonic() + limit
        response = await self._send(request, limit)
        try:
            content = bytearray()
            async for chunk in response.aiter_bytes():
                content += chunk
                if time.monotonic() > end:
                    raise httpx.ReadTimeout(f"the response was not complete after {limit:g} seconds")
        finally:
            await response.aclose()
        if not response.is_success:
            raise api_error(response.status_code, response.headers.get("retry-after"), bytes(content))
        return httpx.Response(response.status_code, headers=_kept(response), content=bytes(content))

    async def _send(self, request: Request, read: float) -> httpx.Response:
        connect = self._limits.connect_timeout
        return await self._http.send(
            self._http.build_request(
                request.method,
                self.url + request.path,
                params=_request.to_text(request.query) or None,
                headers=_request.to_headers(request.headers),
                json=request.body,
                timeout=httpx.Timeout(connect=connect, read=read, write=self._limits.response_timeout, pool=None),
            ),
            stream=True,
        )

    def stream_turn(self, request: Request) -> AsyncEventStream:
        """Streams one turn; the request must have an `Idempotency-Key`."""
        return AsyncEventStream(self._turn(request))

    async def _turn(self, request: Request) -> AsyncGenerator[Event, None]:
        retries, position, has_ended = Retries(self._limits.attempts), Position(), False
        while True:
            position.reconnect()
            failure: SaggarError = ConnectionFailed("the stream ended before its turn")
            try:
                response = await self._open_stream(request)
                try:
                    parser = EventParser()
                    async for chunk in response.aiter_bytes():
                        for received in parser.feed(chunk):
                            event = position.accept(received)
                            if event is None:
                                continue
                            retries.succeeded()
                            # `done` can follow an error, and nothing follows `done`.
                            has_ended = has_ended or event["event"] in ("done", "error")
                            yield event
                            if event["event"] == "done":
                                return
                        if parser.comments:
                            retries.succeeded()
                finally:
                    await response.aclose()
            except ApiError as error:
                failure = error
            except httpx.RequestError as error:
                failure = self._failure(error)
            if has_ended:
                return
            await anyio.sleep(retries.delay_after(failure))

    def stream_session(self, request: Request, session: Request, after: int) -> AsyncEventStream:
        """Streams a session after the event with this id. `session` is the request for its status."""
        return AsyncEventStream(self._session(request, session, after))

    async def _session(self, request: Request, session: Request, after: int) -> AsyncGenerator[Event, None]:
        retries, position, had_no_sandbox = Retries(self._limits.attempts), Position(after), False
        while True:
            position.reconnect()
            is_new, is_complete = False, False
            failure: SaggarError = ConnectionFailed("the server ended the stream")
            try:
                headers = {"last-event-id": position.resume_after}
                response = await self._open_stream(Request("GET", request.path, headers=headers))
                try:
                    parser = EventParser()
                    async for chunk in response.aiter_bytes():
                        for received in parser.feed(chunk):
                            event = position.accept(received)
                            if event is not None:
                                is_new = True
                                retries.succeeded()
                                yield event
                        if parser.comments:
                            # The stream of a session without a sandbox ends at once, without comments.
                            had_no_sandbox = False
                            retries.succeeded()
                    is_complete = True
                finally:
                    await response.aclose()
            except ApiError as error:
                failure = error
            except httpx.RequestError as error:
                failure = self._failure(error)
            if is_complete:
                # The server ends a stream when it stops, and when there is no sandbox. Events that it stored since then
                # are requested once more.
                if had_no_sandbox and not is_new:
                    return
                status = (await self.call(session)).json()["session"]["status"]
                had_no_sandbox = status not in ("starting", "active")
                if had_no_sandbox:
                    continue
            await anyio.sleep(retries.delay_after(failure))

    async def _open_stream(self, request: Request) -> httpx.Response:
        response = await self._send(request, self._limits.stream_timeout)
        try:
            if response.is_success and response.headers.get("content-type", "").startswith("text/event-stream"):
                return response
            content = await response.aread()
        except BaseException:
            await response.aclose()
            raise
        await response.aclose()
        if response.is_success:
            raise ApiError(response.status_code, "the response is not a stream of events", None)
        raise api_error(response.status_code, response.headers.get("retry-after"), content)

    def _failure(self, error: httpx.RequestError) -> ConnectionFailed:
        reason = str(error) or type(error).__name__
        return ConnectionFailed(f"the connection to {self.url} failed: {reason}")


def _kept(response: httpx.Response) -> dict[str, Any]:
    # The body is decoded already, so that the headers about its encoding do not apply.
    return {name: value for name, value in response.headers.items() if name == "content-type"}
