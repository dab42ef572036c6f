"""Parser of server-sent events, by section 9.2 of the HTML standard of WHATWG.

httpx-sse is not used: httpx-sse 0.4 keeps a byte order mark and drops comments, by which the client sees that a stream
is alive.
"""

import codecs
import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE_END = re.compile("\r\n|\n|\r")


class ServerSentEvent(NamedTuple):
    """One event. `id` is empty if the stream has sent none yet."""

    id: str
    event: str
    data: str


class EventParser:
    """Parses a stream from chunks of bytes, which can end anywhere.

    An event at the end of the stream without its empty line is incomplete, and never returned.
    """

    def __init__(self) -> None:
        self.comments = 0
        """The number of comments so far."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending: list[str] = []  # The parts of a line without its end.
        self._at_start = True
        self._skip_line_feed = False
        self._id = ""
        self._event = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        """Returns the events that this chunk completes."""
        for line in self._lines(self._decoder.decode(chunk)):
            if line:
                self._field(line)
            elif self._data:
                yield ServerSentEvent(self._id, self._event or "message", "\n".join(self._data))
                self._event, self._data = "", []
            else:
                self._event = ""

    def _lines(self, text: str) -> Iterator[str]:
        if text and self._at_start:
            self._at_start = False
            text = text.removeprefix("\ufeff")
        if text and self._skip_line_feed:
            # A CR at the end of a chunk has ended its line already; this LF belongs to it.
            self._skip_line_feed = False
            text = text.removeprefix("\n")
        start = 0
        for end in _LINE_END.finditer(text):
            self._pending.append(text[start : end.start()])
            line, self._pending = "".join(self._pending), []
            start = end.end()
            self._skip_line_feed = end.group() == "\r" and start == len(text)
            yield line
        if start < len(text):
            self._pending.append(text[start:])

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "":
                self.comments += 1
            case "data":
                self._data.append(value)
            case "event":
                self._event = value
            case "id" if "\0" not in value:
                self._id = value
