"""When a request is repeated, and after which delay."""

import random
from dataclasses import dataclass

from ._errors import ApiError

MAX_DELAY = 30.0
"""The longest delay before a request is repeated, in seconds."""
_FIRST_DELAY = 0.5
_MAX_TIMEOUT = 24 * 86400.0
"""In seconds; above, sockets fail with an overflow."""


@dataclass(frozen=True)
class Limits:
    """The limits of a client; times are in seconds."""

    attempts: int
    stream_attempts: int
    connect_timeout: float
    response_timeout: float
    stream_timeout: float

    def __post_init__(self) -> None:
        for name in ("attempts", "stream_attempts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("connect_timeout", "response_timeout", "stream_timeout"):
            if not 0 < getattr(self, name) <= _MAX_TIMEOUT:
                limits = f"greater than 0 and at most {_MAX_TIMEOUT:.0f} seconds"
                raise ValueError(f"{name} is {getattr(self, name)}; it must be {limits}")


class Retries:
    """Counts the attempts of one request."""

    def __init__(self, attempts: int) -> None:
        self._attempts = attempts
        self._failures = 0

    def succeeded(self) -> None:
        """Counts from the beginning: a stream has made progress."""
        self._failures = 0

    def delay_after(self, error: Exception) -> float:
        """Returns the seconds to wait before the next attempt.

        Raises `error` if there is none: an error response is repeated only with status 429 or 503 and a `Retry-After`
        of at most `MAX_DELAY`.
        """
        self._failures += 1
        if self._failures >= self._attempts:
            raise error
        # Not the same delay for clients that a restart of the server cut off at once.
        delay = min(_FIRST_DELAY * 2.0 ** min(self._failures - 1, 10), MAX_DELAY) * random.uniform(0.5, 1)
        if not isinstance(error, ApiError):
            return delay
        wanted = error.retry_after
        if error.status not in (429, 503) or wanted is None or wanted > MAX_DELAY:
            raise error
        return min(max(delay, wanted), MAX_DELAY)
