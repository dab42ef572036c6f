"""The parser of server-sent events."""

import unittest

from saggar_client._sse import EventParser
from saggar_client._sse import ServerSentEvent as E

TABLE = [
    ("line feeds", b"id: 1\nevent: a\ndata: x\n\n", [E("1", "a", "x")]),
    ("carriage returns", b"id: 1\revent: a\rdata: x\r\r", [E("1", "a", "x")]),
    ("both", b"id: 1\r\nevent: a\r\ndata: x\r\n\r\n", [E("1", "a", "x")]),
    ("mixed line ends", b"event: a\rdata: x\r\ndata: y\n\r", [E("", "a", "x\ny")]),
    ("byte order mark", b"\xef\xbb\xbfdata: x\n\n", [E("", "message", "x")]),
    ("a second mark is text", b"\xef\xbb\xbf\xef\xbb\xbfdata: x\n\ndata: y\n\n", [E("", "message", "y")]),
    ("several lines of data", b"data: a\ndata\ndata:b\n\n", [E("", "message", "a\n\nb")]),
    ("one space is removed", b"data:  x \n\n", [E("", "message", " x ")]),
    ("colons in the value", b"data: a:b: c\n\n", [E("", "message", "a:b: c")]),
    ("comments and unknown fields", b": c\n:\nretry: 1\nother: 2\ndata: x\n\n", [E("", "message", "x")]),
    ("no data, no event", b"event: a\n\ndata: x\n\n", [E("", "message", "x")]),
    ("empty data", b"data\n\n", [E("", "message", "")]),
    ("the id remains", b"id: 7\ndata: x\n\ndata: y\n\n", [E("7", "message", "x"), E("7", "message", "y")]),
    ("the id is cleared", b"id: 7\ndata: x\n\nid\ndata: y\n\n", [E("7", "message", "x"), E("", "message", "y")]),
    ("an id with NUL is ignored", b"id: 7\nid: \0\ndata: x\n\n", [E("7", "message", "x")]),
    ("incomplete at the end", b"data: x\n\ndata: y\n", [E("", "message", "x")]),
    ("other separators are text", "data: a\u2028\x0b\x0c\x85\n\n".encode(), [E("", "message", "a\u2028\x0b\x0c\x85")]),
    ("not UTF-8", b"data: a\xffb\n\n", [E("", "message", "a\ufffdb")]),
    ("characters of several bytes", "data: ü€😀\n\n".encode(), [E("", "message", "ü€😀")]),
]


class Parser(unittest.TestCase):
    def test_table_whole_by_byte_and_at_each_boundary(self) -> None:
        for name, text, expected in TABLE:
            boundaries = [[text], [text[at : at + 1] for at in range(len(text))]]
            boundaries += [[text[:at], text[at:]] for at in range(len(text))]
            for chunks in boundaries:
                with self.subTest(name, chunks=chunks):
                    parser = EventParser()
                    found = [event for chunk in chunks for event in parser.feed(chunk)]
                    self.assertEqual(found, expected)

    def test_comments_are_counted(self) -> None:
        parser = EventParser()
        self.assertEqual(list(parser.feed(b":\n: two\ndata: x\n")), [])
        self.assertEqual(parser.comments, 2)
