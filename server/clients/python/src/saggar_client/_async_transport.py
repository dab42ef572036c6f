"""Sends requests, repeats them, and reads streams.

This file is also the source of `_transport.py`, which `generator` derives from it.
"""

import contextlib
import time
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Any, Self, cast

import anyio
import httpx

from . import _request
from ._errors import ApiError, ConnectionFailed, SaggarError, api_error
from ._request import Request
from ._resume import Position
from ._retry import Limits, Retries
from ._sse import EventParser
from .types import Event, SessionResponse


class AsyncEventStream:
    """The events of a stream. The request is sent when the iteration begins.

    The end of a `with` block, or `aclose`, closes the connection.
    """

    def __init__(self, events: AsyncGenerator[Event, None]) -> None:
        self._events = events
        self._was_cancelled = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._was_cancelled:
            # The generator is at its end, as after the last event.
            raise ConnectionFailed("the stream was cancelled")
        try:
            return await self._events.__anext__()
        except BaseException as error:
            self._was_cancelled = not isinstance(error, Exception)
            raise

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
                    raise failure
                delay = retries.delay_after(failure)
            await anyio.sleep(delay)

    async def _call_once(self, request: Request) -> httpx.Response:
        limit = self._limits.response_timeout
        end = time.monotonic() + limit
        content = bytearray()
        try:
            with anyio.fail_after(limit):
                response = await self._send(request, limit)
                try:
                    response.request.extensions["timeout"]["read"] = max(end - time.monotonic(), 0.001)
                    async for chunk in response.aiter_bytes():
                        content += chunk
                        if time.monotonic() > end:
                            raise TimeoutError
                finally:
                    await response.aclose()
        except TimeoutError as error:
            raise httpx.ReadTimeout(f"the response was not complete after {limit:g} seconds") from error
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
        retries, position, has_ended = Retries(self._limits.stream_attempts), Position(), False
        while True:
            parser = EventParser()
            failure: SaggarError = ConnectionFailed("the stream ended before its turn")
            try:
                async with contextlib.aclosing(self._events(request, position, parser)) as events:
                    async for event in events:
                        retries.succeeded()
                        # `done` can follow an error, and nothing follows `done`.
                        has_ended = has_ended or event["event"] in ("done", "error")
                        yield event
                        if event["event"] == "done":
                            return
            except (SaggarError, httpx.RequestError) as error:
                failure = self._failure(error)
            if has_ended:
                return
            if parser.comments:
                retries.succeeded()
            await anyio.sleep(retries.delay_after(failure))

    def stream_session(self, request: Request, session: Request, after: int) -> AsyncEventStream:
        """Streams a session after the event with this id. `session` is the request for its status."""
        return AsyncEventStream(self._session(request, session, after))

    async def _session(self, request: Request, session: Request, after: int) -> AsyncGenerator[Event, None]:
        retries, position, had_no_sandbox = Retries(self._limits.stream_attempts), Position(after), False
        while True:
            parser, is_new = EventParser(), False
            failure: SaggarError = ConnectionFailed("the server ended the stream")
            resumed = Request("GET", request.path, headers={"last-event-id": position.resume_after})
            try:
                async with contextlib.aclosing(self._events(resumed, position, parser)) as events:
                    async for event in events:
                        is_new = True
                        retries.succeeded()
                        yield event
                # The server ends a stream when it stops, and when there is no sandbox: then at once, without comments.
                # Events that it stored since then are requested once more.
                if had_no_sandbox and not is_new and not parser.comments:
                    return
                response = cast(SessionResponse, _request.parse_json(await self._call_once(session)))
                had_no_sandbox = response["session"]["status"] not in ("starting", "active")
                if had_no_sandbox:
                    continue
            except (SaggarError, httpx.RequestError) as error:
                failure, had_no_sandbox = self._failure(error), False
            if parser.comments:
                retries.succeeded()
            await anyio.sleep(retries.delay_after(failure))

    async def _events(self, request: Request, position: Position, parser: EventParser) -> AsyncGenerator[Event, None]:
        """The new events of one connection. `parser` counts its comments, which show that it was alive."""
        position.reconnect()
        response = await self._open_stream(request)
        try:
            async for chunk in response.aiter_bytes():
                for received in parser.feed(chunk):
                    event = position.accept(received)
                    if event is not None:
                        yield event
        finally:
            await response.aclose()

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

    def _failure(self, error: SaggarError | httpx.RequestError) -> SaggarError:
        if isinstance(error, SaggarError):
            return error
        reason = str(error) or type(error).__name__
        failure = ConnectionFailed(f"the connection to {self.url} failed: {reason}")
        failure.__cause__ = error
        return failure


def _kept(response: httpx.Response) -> dict[str, Any]:
    # The body is decoded already, so that the headers about its encoding do not apply.
    return {name: value for name, value in response.headers.items() if name == "content-type"}
