"""Streams whose connection is lost."""

import asyncio
import unittest
from typing import Any
from unittest.mock import patch

import httpx

from saggar_client import ApiError, AsyncClient, Client, ConnectionFailed
from saggar_client.types import Event
from scripted import Answer, ScriptedServer, event, response, stream

START = event(999, "session_start", '{"sessionId": "s", "version": "1"}')
UPDATED = event(999, "session_start", '{"sessionId": "s", "version": "2"}')
DONE = event(2999, "done")
ACTIVE, STOPPED = (response(200, b'{"session": {"status": "%s"}}' % status) for status in (b"active", b"stopped"))


def brief(events: list[Event]) -> list[tuple[int, str, object]]:
    return [(found["id"], found["event"], found["data"]) for found in events]


class Streams(unittest.TestCase):
    def setUp(self) -> None:
        self.delays: list[float] = []
        patcher = patch("saggar_client._transport.time.sleep", self.delays.append)
        patcher.start()
        self.addCleanup(patcher.stop)

    def turn(self, *answers: Answer | bytes, key: str | None = None) -> tuple[list[Event], ScriptedServer]:
        with ScriptedServer(*answers) as server, Client(server.url, "k") as client:
            return list(client.send_message("s", {"content": "hi"}, idempotency_key=key)), server

    def test_turn_is_cut_anywhere(self) -> None:
        # Several events share an id, one of them twice with the same data.
        parts = [START, event(1000, "a", '"ü"'), event(1000, "b"), event(1000, "b"), event(1998, "message", "1"), DONE]
        whole = stream(*parts, complete=True)
        expected: list[tuple[int, str, object]] = []
        again = stream(UPDATED, *parts[1:], complete=True)
        end = whole.index(b"event: done") + len(b"event: done\ndata: {}\n")
        for at in [*range(0, end, 7), end]:
            events, server = self.turn(Answer(whole[:at], "reset" if at % 2 else "close"), again)
            self.assertEqual(len(server.requests), 2)
            found = brief(events)
            found[0] = (*found[0][:2], None)
            expected = expected or found
            self.assertEqual(found, expected, whole[:at])
            self.assertEqual([name for _, name, _ in found], ["session_start", "a", "b", "b", "message", "done"])

    def test_turn_keeps_its_key(self) -> None:
        _, server = self.turn(stream(START), stream(START, DONE))
        [first, second] = server.headers("idempotency-key")
        self.assertTrue(first is not None and len(first) == 36 and first == second)
        self.assertEqual(server.requests[0], server.requests[1])
        _, server = self.turn(stream(START, DONE), key="own")
        self.assertEqual(server.headers("idempotency-key"), ["own"])

    def test_complete_response_before_the_end_of_the_turn_is_a_loss(self) -> None:
        events, server = self.turn(stream(START, complete=True), stream(START, DONE))
        self.assertEqual((len(events), len(server.requests)), (2, 2))

    def test_error_ends_the_turn_and_done_can_follow(self) -> None:
        failed = event(999, "error", '{"error": "e"}')
        for end, names in [(b": c\n\n", ["error"]), (event(999, "done"), ["error", "done"])]:
            events, server = self.turn(stream(START, failed, end))
            self.assertEqual([found["event"] for found in events][1:], names)
            self.assertEqual(len(server.requests), 1)

    def test_attempts_without_progress_are_bounded(self) -> None:
        # The first brings an event; its end is the first of four failures in a row.
        with ScriptedServer(*[stream(START)] * 4) as server, Client(server.url, "k", stream_attempts=4) as client:
            with self.assertRaises(ConnectionFailed) as caught:
                list(client.send_message("s", {"content": "hi"}))
        self.assertEqual((len(server.requests), len(self.delays)), (4, 3))
        self.assertIsInstance(caught.exception.__cause__, httpx.RequestError)

    def test_streams_outlast_a_restart_of_the_server(self) -> None:
        def shortest(low: float, _: float) -> float:
            return low

        with ScriptedServer(stream(START)) as server, Client(server.url, "k") as client:
            for events in (client.send_message("s", {"content": "hi"}), client.stream_session("s")):
                self.delays.clear()
                with patch("saggar_client._retry.random.uniform", shortest), self.assertRaises(ConnectionFailed):
                    list(events)
                self.assertGreaterEqual(sum(self.delays), 30)

    def test_many_attempts_are_possible(self) -> None:
        with Client("http://127.0.0.1:1", "k", stream_attempts=1200) as client:
            with patch.object(client._transport, "_open_stream", side_effect=httpx.ConnectError("refused")):
                with self.assertRaisesRegex(ConnectionFailed, "refused"):
                    list(client.send_message("s", {"content": "hi"}))
        self.assertEqual((len(self.delays), max(self.delays) <= 30), (1199, True))

    def test_refused_stream_is_an_error(self) -> None:
        with ScriptedServer(stream(START), response(400, b'{"error": "not active"}')) as server:
            with Client(server.url, "k") as client, self.assertRaisesRegex(ApiError, "400: not active"):
                list(client.send_message("s", {"content": "hi"}))
        with ScriptedServer(response(200, b"{}")) as server, Client(server.url, "k") as client:
            with self.assertRaisesRegex(ApiError, "not a stream"):
                list(client.send_message("s", {"content": "hi"}))

    def test_busy_server_gets_the_message_later(self) -> None:
        events, _ = self.turn(response(503, b"{}", "retry-after: 3"), stream(START, DONE))
        self.assertEqual((len(events), self.delays), (2, [3]))

    def test_silent_stream_is_lost_and_comments_keep_it(self) -> None:
        # On a busy machine, a stream with all events can count as silent too.
        with ScriptedServer(Answer(stream(START, b": c\n\n"), "hold"), *[stream(START, DONE)] * 8) as server:
            with Client(server.url, "k", stream_timeout=2, stream_attempts=9) as client:
                self.assertEqual(len(list(client.send_message("s", {"content": "hi"}))), 2)
        self.assertTrue(server.client_closed.is_set())

    def test_invalid_events_are_errors(self) -> None:
        for invalid in (event(1000, "a", "{"), b"event: a\ndata: {}\n\n"):
            with self.assertRaises(ApiError):
                self.turn(stream(invalid))

    def test_early_end_closes_the_connection(self) -> None:
        with ScriptedServer(Answer(stream(START), "hold")) as server, Client(server.url, "k") as client:
            for found in client.send_message("s", {"content": "hi"}):
                self.assertEqual(found["event"], "session_start")
                break
            self.assertTrue(server.client_closed.wait(60))

    def test_early_end_closes_the_asynchronous_connection(self) -> None:
        async def run(server: ScriptedServer) -> None:
            async with AsyncClient(server.url, "k") as client:
                async with client.send_message("s", {"content": "hi"}) as events:
                    async for _ in events:
                        break
                self.assertTrue(await asyncio.to_thread(server.client_closed.wait, 60))

        with ScriptedServer(Answer(stream(START), "hold")) as server:
            asyncio.run(run(server))

    def test_cancelled_stream_does_not_look_complete(self) -> None:
        async def run(url: str) -> None:
            async with AsyncClient(url, "k") as client, client.send_message("s", {"content": "hi"}) as events:
                await anext(events)
                waiting = asyncio.ensure_future(anext(events))
                await asyncio.sleep(0)
                waiting.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await waiting
                with self.assertRaisesRegex(ConnectionFailed, "cancelled"):
                    await anext(events)

        with ScriptedServer(Answer(stream(START), "hold")) as server:
            asyncio.run(run(server.url))

    def session(self, *answers: Answer | bytes, **options: Any) -> list[str]:
        with ScriptedServer(*answers) as server, Client(server.url, "k", **options) as client:
            return [found["event"] for found in client.stream_session("s")]

    def test_lost_request_for_the_status_is_a_lost_connection(self) -> None:
        complete = stream(event(999, "session_start"), event(1000, "a"), complete=True)
        rest = stream(event(999, "session_start"), event(1000, "a"), event(1001, "b"), complete=True)
        busy = response(503, b"{}", "retry-after: 9")
        found = self.session(complete, b"", rest, busy, rest, STOPPED, rest)
        self.assertEqual((found, len(self.delays), self.delays[1]), (["session_start", "a", "b"], 2, 9))
        with self.assertRaisesRegex(ApiError, "404"):
            self.session(complete, response(404))
        with self.assertRaises(ConnectionFailed):
            self.session(complete, b"", stream_attempts=1)

    def test_session_continues_after_its_last_event_and_ends_with_the_sandbox(self) -> None:
        first = stream(event(5, "session_start"), event(1000, "a"), event(1000, "b"))
        second = stream(event(999, "session_start"), event(1000, "b"), event(1000, "c"), complete=True)
        third = stream(event(999, "session_start"), event(1000, "c"), event(2000, "d"), complete=True)
        rest = stream(event(1999, "session_start"), event(2000, "d"), complete=True)
        with ScriptedServer(first, second, ACTIVE, third, STOPPED, rest) as server, Client(server.url, "k") as client:
            found = list(client.stream_session("s", after=5))
        self.assertEqual([one["event"] for one in found], ["session_start", "a", "b", "c", "d"])
        self.assertEqual(server.headers("last-event-id"), ["5", "999", None, "999", None, "1999"])

    def test_last_event_id_precedes_after(self) -> None:
        with ScriptedServer(stream(complete=True), STOPPED, stream(complete=True)) as server:
            with Client(server.url, "k", attempts=1) as client:
                self.assertEqual(list(client.stream_session("s", after=5, last_event_id=7)), [])
        self.assertEqual(server.headers("last-event-id"), ["7", None, "7"])
