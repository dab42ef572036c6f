"""The exceptions of the client. None of them contains the API key."""

import json


class SaggarError(Exception):
    """The base of all exceptions of the client."""


class ApiError(SaggarError):
    """The server answered with an error, or with something that is not an answer of the API.

    `status` is that of the response, `message` the text of the document for it, `body` the JSON of the response (or its
    text, if it is not JSON), and `retry_after` the seconds after which the request can be repeated, where given.
    """

    def __init__(self, status: int, message: str, body: object, retry_after: float | None = None) -> None:
        super().__init__(f"status {status}: {message}")
        self.status = status
        self.message = message
        self.body = body
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.status, self.message, self.body, self.retry_after))


class ConnectionFailed(SaggarError):
    """The server could not be reached, or the connection was lost or too slow."""


def api_error(status: int, headers_retry_after: str | None, content: bytes) -> ApiError:
    """Creates the exception for an error response."""
    text = content.decode("utf-8", "replace")
    try:
        body: object = json.loads(text)
    except ValueError:
        body = text
    message = text[:200] or "the response has no body"
    if isinstance(body, dict):
        # With `message`, `error` is only the name of the status.
        found = body.get("message") or body.get("error")
        message = found if isinstance(found, str) else message
    return ApiError(status, message, body, parse_retry_after(headers_retry_after))


def parse_retry_after(value: str | None) -> float | None:
    """Returns the seconds of a header `Retry-After`. The server never sends a date."""
    return float(value) if value is not None and value.isascii() and value.isdigit() else None
