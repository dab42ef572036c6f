"""Which events of a stream are new after a reconnect. No I/O.

Ids never decrease in a stream, and several events can have the same id, so that the id alone does not tell whether an
event was delivered. The events with the last id are therefore compared by name and data.
"""

import json
from typing import cast

from ._errors import ApiError
from ._sse import ServerSentEvent
from .types import Event


class Position:
    """What a stream has delivered."""

    def __init__(self, after: int = 0) -> None:
        self._last = after
        self._at_last: list[tuple[str, str]] = []  # The delivered events with the last id.
        self._repeated: list[tuple[str, str]] = []  # Those that this connection has not repeated yet.
        self._has_started = False

    @property
    def resume_after(self) -> int:
        """The id for `Last-Event-ID`: events with the last id can be missing, so the server sends them again."""
        return max(self._last - 1, 0) if self._at_last else self._last

    def reconnect(self) -> None:
        """Begins a connection."""
        self._repeated = list(self._at_last)

    def accept(self, received: ServerSentEvent) -> Event | None:
        """Returns the event if it is new."""
        if not (received.id.isascii() and received.id.isdigit()):
            raise ApiError(200, f"the server sent an event {received.event!r} without a numeric id", received.data)
        number, key = int(received.id), (received.event, received.data)
        if received.event == "session_start":
            # Each connection begins with one of its own, whose version can be another after an update.
            if self._has_started:
                return None
            self._has_started = True
            return _decode(number, received)
        if number < self._last:
            return None
        if number > self._last:
            self._last, self._at_last, self._repeated = number, [], []
        elif key in self._repeated:
            self._repeated.remove(key)
            return None
        self._at_last.append(key)
        return _decode(number, received)


def _decode(number: int, received: ServerSentEvent) -> Event:
    try:
        data = json.loads(received.data)
    except ValueError:
        raise ApiError(200, f"the data of event {number} ({received.event}) is not JSON", received.data) from None
    return cast(Event, {"id": number, "event": received.event, "data": data})
