# Derived from _async_transport.py by `python3 -m generator`; do not edit.
"""Sends requests, repeats them, and reads streams."""

import contextlib
import time
from collections.abc import Generator
from types import TracebackType
from typing import Any, Self, cast

import httpx

from . import _request
from ._errors import ApiError, ConnectionFailed, SaggarError, api_error
from ._request import Request
from ._resume import Position
from ._retry import Limits, Retries
from ._sse import EventParser
from .types import Event, SessionResponse


class EventStream:
    """The events of a stream. The request is sent when the iteration begins.

    The end of a `with` block, or `close`, closes the connection.
    """

    def __init__(self, events: Generator[Event, None, None]) -> None:
        self._events = events
        self._was_cancelled = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        if self._was_cancelled:
            # The generator is at its end, as after the last event.
            raise ConnectionFailed("the stream was cancelled")
        try:
            return self._events.__next__()
        except BaseException as error:
            self._was_cancelled = not isinstance(error, Exception)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection. The turn continues."""
        self._events.close()


class Transport:
    """The connections to one server."""

    def __init__(self, url: str, key: str | None, ca_file: str | None, limits: Limits) -> None:
        self.url = _request.check_url(url)
        self._limits = limits
        self._http = httpx.Client(
            headers=_request.authorization(key),
            verify=_request.tls_context(ca_file),
            # Each stream has a connection; by default, the hundredth one would wait for the end of another.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        )

    def close(self) -> None:
        self._http.close()

    def call(self, request: Request) -> httpx.Response:
        """Returns the response to a request with its body, or raises an error."""
        retries = Retries(self._limits.attempts)
        while True:
            try:
                return self._call_once(request)
            except ApiError as error:
                delay = retries.delay_after(error)
            except httpx.RequestError as error:
                failure = self._failure(error)
                if not request.is_repeatable or isinstance(error, httpx.ReadTimeout):
                    raise failure
                delay = retries.delay_after(failure)
            time.sleep(delay)

    def _call_once(self, request: Request) -> httpx.Response:
        limit = self._limits.response_timeout
        end = time.monotonic() + limit
        content = bytearray()
        try:
            with contextlib.nullcontext():
                response = self._send(request, limit)
                try:
                    response.request.extensions["timeout"]["read"] = max(end - time.monotonic(), 0.001)
                    for chunk in response.iter_bytes():
                        content += chunk
                        if time.monotonic() > end:
                            raise TimeoutError
                finally:
                    response.close()
        except TimeoutError as error:
            raise httpx.ReadTimeout(f"the response was not complete after {limit:g} seconds") from error
        if not response.is_success:
            raise api_error(response.status_code, response.headers.get("retry-after"), bytes(content))
        return httpx.Response(response.status_code, headers=_kept(response), content=bytes(content))

    def _send(self, request: Request, read: float) -> httpx.Response:
        connect = self._limits.connect_timeout
        return self._http.send(
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

    def stream_turn(self, request: Request) -> EventStream:
        """Streams one turn; the request must have an `Idempotency-Key`."""
        return EventStream(self._turn(request))

    def _turn(self, request: Request) -> Generator[Event, None, None]:
        retries, position, has_ended = Retries(self._limits.stream_attempts), Position(), False
        while True:
            parser = EventParser()
            failure: SaggarError = ConnectionFailed("the stream ended before its turn")
            try:
                with contextlib.closing(self._events(request, position, parser)) as events:
                    for event in events:
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
            time.sleep(retries.delay_after(failure))

    def stream_session(self, request: Request, session: Request, after: int) -> EventStream:
        """Streams a session after the event with this id. `session` is the request for its status."""
        return EventStream(self._session(request, session, after))

    def _session(self, request: Request, session: Request, after: int) -> Generator[Event, None, None]:
        retries, position, had_no_sandbox = Retries(self._limits.stream_attempts), Position(after), False
        while True:
            parser, is_new = EventParser(), False
            failure: SaggarError = ConnectionFailed("the server ended the stream")
            resumed = Request("GET", request.path, headers={"last-event-id": position.resume_after})
            try:
                with contextlib.closing(self._events(resumed, position, parser)) as events:
                    for event in events:
                        is_new = True
                        retries.succeeded()
                        yield event
                # The server ends a stream when it stops, and when there is no sandbox: then at once, without comments.
                # Events that it stored since then are requested once more.
                if had_no_sandbox and not is_new and not parser.comments:
                    return
                response = cast(SessionResponse, _request.parse_json(self._call_once(session)))
                had_no_sandbox = response["session"]["status"] not in ("starting", "active")
                if had_no_sandbox:
                    continue
            except (SaggarError, httpx.RequestError) as error:
                failure, had_no_sandbox = self._failure(error), False
            if parser.comments:
                retries.succeeded()
            time.sleep(retries.delay_after(failure))

    def _events(self, request: Request, position: Position, parser: EventParser) -> Generator[Event, None, None]:
        """The new events of one connection. `parser` counts its comments, which show that it was alive."""
        position.reconnect()
        response = self._open_stream(request)
        try:
            for chunk in response.iter_bytes():
                for received in parser.feed(chunk):
                    event = position.accept(received)
                    if event is not None:
                        yield event
        finally:
            response.close()

    def _open_stream(self, request: Request) -> httpx.Response:
        response = self._send(request, self._limits.stream_timeout)
        try:
            if response.is_success and response.headers.get("content-type", "").startswith("text/event-stream"):
                return response
            content = response.read()
        except BaseException:
            response.close()
            raise
        response.close()
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
