# Derived from _async_transport.py by `python3 -m generator`; do not edit.
"""Sends requests, repeats them, and reads streams."""

import time
from collections.abc import Generator
from types import TracebackType
from typing import Any, Self

import httpx

from . import _request
from ._errors import ApiError, ConnectionFailed, SaggarError, api_error
from ._request import Request
from ._resume import Position
from ._retry import Limits, Retries
from ._sse import EventParser
from .types import Event


class EventStream:
    """The events of a stream. The request is sent when the iteration begins.

    The end of a `with` block, or `close`, closes the connection.
    """

    def __init__(self, events: Generator[Event, None, None]) -> None:
        self._events = events

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        return self._events.__next__()

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
                    raise failure from error
                delay = retries.delay_after(failure)
            time.sleep(delay)

    def _call_once(self, request: Request) -> httpx.Response:
        limit = self._limits.response_timeout
        end = time.monotonic() + limit
        response = self._send(request, limit)
        try:
            content = bytearray()
            for chunk in response.iter_bytes():
                content += chunk
                if time.monotonic() > end:
                    raise httpx.ReadTimeout(f"the response was not complete after {limit:g} seconds")
        finally:
            response.close()
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
        retries, position, has_ended = Retries(self._limits.attempts), Position(), False
        while True:
            position.reconnect()
            failure: SaggarError = ConnectionFailed("the stream ended before its turn")
            try:
                response = self._open_stream(request)
                try:
                    parser = EventParser()
                    for chunk in response.iter_bytes():
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
                    response.close()
            except ApiError as error:
                failure = error
            except httpx.RequestError as error:
                failure = self._failure(error)
            if has_ended:
                return
            time.sleep(retries.delay_after(failure))

    def stream_session(self, request: Request, session: Request, after: int) -> EventStream:
        """Streams a session after the event with this id. `session` is the request for its status."""
        return EventStream(self._session(request, session, after))

    def _session(self, request: Request, session: Request, after: int) -> Generator[Event, None, None]:
        retries, position, had_no_sandbox = Retries(self._limits.attempts), Position(after), False
        while True:
            position.reconnect()
            is_new, is_complete = False, False
            failure: SaggarError = ConnectionFailed("the server ended the stream")
            try:
                headers = {"last-event-id": position.resume_after}
                response = self._open_stream(Request("GET", request.path, headers=headers))
                try:
                    parser = EventParser()
                    for chunk in response.iter_bytes():
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
                    response.close()
            except ApiError as error:
                failure = error
            except httpx.RequestError as error:
                failure = self._failure(error)
            if is_complete:
                # The server ends a stream when it stops, and when there is no sandbox. Events that it stored since then
                # are requested once more.
                if had_no_sandbox and not is_new:
                    return
                status = (self.call(session)).json()["session"]["status"]
                had_no_sandbox = status not in ("starting", "active")
                if had_no_sandbox:
                    continue
            time.sleep(retries.delay_after(failure))

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

    def _failure(self, error: httpx.RequestError) -> ConnectionFailed:
        reason = str(error) or type(error).__name__
        return ConnectionFailed(f"the connection to {self.url} failed: {reason}")


def _kept(response: httpx.Response) -> dict[str, Any]:
    # The body is decoded already, so that the headers about its encoding do not apply.
    return {name: value for name, value in response.headers.items() if name == "content-type"}
