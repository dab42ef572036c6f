"""Requests that are repeated, errors, and secrets."""

import asyncio
import pickle
import tempfile
import unittest
from unittest.mock import patch

import httpx

from saggar_client import ApiError, AsyncClient, Client, ConnectionFailed
from scripted import Answer, ScriptedServer, response

KEY = "ash_secret"
BUSY = response(503, b'{"statusCode": 503, "error": "capacity reached"}', "retry-after: 2")


class Requests(unittest.TestCase):
    def setUp(self) -> None:
        # Delays are recorded and not waited for.
        self.delays: list[float] = []
        patcher = patch("saggar_client._transport.time.sleep", self.delays.append)
        patcher.start()
        self.addCleanup(patcher.stop)

    def test_get_is_repeated_after_a_lost_connection(self) -> None:
        cut = response(200, b'{"agents": []}')[:-5]
        with ScriptedServer(b"", Answer(cut), Answer(cut, "reset"), response(200, b'{"agents": []}')) as server:
            with Client(server.url, KEY) as client:
                self.assertEqual(client.list_agents(), {"agents": []})
        self.assertEqual(len(server.requests), 4)
        self.assertEqual(server.headers("authorization"), [f"Bearer {KEY}"] * 4)
        for delay, longest in zip(self.delays, (0.5, 1, 2), strict=True):
            self.assertTrue(longest / 2 <= delay <= longest, self.delays)

    def test_attempts_are_bounded(self) -> None:
        with ScriptedServer(b"", b"") as server, Client(server.url, KEY, attempts=2) as client:
            with self.assertRaises(ConnectionFailed) as caught:
                client.list_agents()
        self.assertEqual(len(server.requests), 2)
        self.assertNotIn(KEY, repr(caught.exception) + str(caught.exception))
        self.assertIsInstance(caught.exception.__cause__, httpx.RequestError)

    def test_other_requests_are_not_repeated_after_a_lost_connection(self) -> None:
        with ScriptedServer(b"") as server, Client(server.url, KEY) as client:
            with self.assertRaises(ConnectionFailed):
                client.create_session({"agent": "a"})
        self.assertEqual((len(server.requests), self.delays), (1, []))

    def test_every_request_is_repeated_after_the_seconds_of_retry_after(self) -> None:
        busy = response(429, b'{"message": "slow down"}', "retry-after: 7")
        with ScriptedServer(BUSY, busy, response(201, b'{"session": {}}')) as server:
            with Client(server.url, KEY) as client:
                self.assertEqual(client.create_session({"agent": "a"}), {"session": {}})
        self.assertEqual(self.delays, [2, 7])
        self.assertEqual(len({request.split(b"\r\n\r\n")[1] for request in server.requests}), 1)

    def test_errors_that_are_not_repeated(self) -> None:
        long = response(429, b'{"message": "later"}', "retry-after: 900")
        for data, status, wait in [(long, 429, 900), (response(503), 503, None), (response(500), 500, None)]:
            with self.subTest(status), ScriptedServer(data) as server, Client(server.url, KEY) as client:
                with self.assertRaises(ApiError) as caught:
                    client.list_agents()
                self.assertEqual((caught.exception.status, caught.exception.retry_after), (status, wait))
        self.assertEqual(self.delays, [])

    def test_error_has_the_message_of_the_document(self) -> None:
        bodies = [
            (b'{"error": "Agent not found", "statusCode": 404}', "Agent not found"),
            (b'{"error": "Bad Request", "message": "name is missing"}', "name is missing"),
            (b"<html>", "<html>"),
            (b"", "the response has no body"),
        ]
        for body, message in bodies:
            with self.subTest(body), ScriptedServer(response(404, body)) as server, Client(server.url, KEY) as client:
                with self.assertRaises(ApiError) as caught:
                    client.get_agent("a")
                self.assertEqual(caught.exception.message, message)
                copy = pickle.loads(pickle.dumps(caught.exception))
                self.assertEqual((copy.status, str(copy)), (404, str(caught.exception)))

    def test_response_that_is_not_json_is_an_error(self) -> None:
        with ScriptedServer(response(200, b"<html>")) as server, Client(server.url, KEY) as client:
            with self.assertRaisesRegex(ApiError, "not JSON"):
                client.list_agents()

    def test_response_has_a_time_limit_and_is_not_repeated(self) -> None:
        with ScriptedServer(Answer(response(200)[:-1], "hold")) as server:
            with Client(server.url, KEY, response_timeout=0.1) as client, self.assertRaises(ConnectionFailed):
                client.list_agents()
        # On a busy machine, the server reads the request only after the client gave up.
        self.assertLessEqual(len(server.requests), 1)
        self.assertEqual(self.delays, [])

    def test_time_limit_of_the_asynchronous_client_holds_for_the_whole_response(self) -> None:
        async def run(url: str) -> None:
            async with AsyncClient(url, KEY, response_timeout=0.3) as client:
                await client.list_agents()

        # A head, and a body, that never end, but never pause for as long as the limit.
        for start in (b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n"):
            with ScriptedServer(Answer(start, "trickle")) as server:
                with self.assertRaisesRegex(ConnectionFailed, "not complete after 0.3 seconds"):
                    asyncio.run(run(server.url))

    def test_parameters_are_escaped_and_none_is_not_sent(self) -> None:
        with ScriptedServer(*[response(200)] * 3) as server, Client(server.url + "/", None) as client:
            client.get_session_file("i", "..a/a b/ü?#%")
            client.get_session_files("i", include_hidden=False)
            client.get_agent("a/b")
            for invalid in ("", ".", ".."):
                with self.assertRaisesRegex(ValueError, "name is .* segment"):
                    client.get_agent(invalid)
            for invalid in ("", "/", "/a", "a/", "a//b", "./a", "a/../b", ".."):
                with self.assertRaisesRegex(ValueError, "path is .* segment"):
                    client.get_session_file("i", invalid)
        lines = [request.split(b"\r\n")[0].decode() for request in server.requests]
        self.assertIn(" /api/sessions/i/files/..a/a%20b/%C3%BC%3F%23%25 ", lines[0])
        self.assertIn(" /api/sessions/i/files?includeHidden=false ", lines[1])
        self.assertIn(" /api/agents/a%2Fb ", lines[2])
        self.assertEqual(server.headers("authorization"), [None] * 3)

    def test_invalid_arguments_are_errors_without_the_key(self) -> None:
        for key in (f"{KEY}\n", "", f"{KEY} x", f"{KEY}ü"):
            with self.assertRaises(ValueError) as caught:
                Client("http://127.0.0.1:1", key)
            self.assertNotIn(KEY, str(caught.exception))
        parts = ("http://a?b", "http://a?", "http://a#b", "http://a/#", "http://a:secret")
        for url in ("127.0.0.1:4100", "ftp://a", "http://user:secret@a", *parts):
            with self.assertRaises(ValueError) as caught:
                Client(url)
            self.assertNotIn("secret", str(caught.exception))
        for name in ("attempts", "stream_attempts"):
            with self.assertRaisesRegex(ValueError, name):
                Client("http://a", **{name: 0})  # type: ignore[arg-type]
        for seconds in (0, -1, 24 * 86400 + 1, 1e10, float("inf"), float("nan")):
            for name in ("connect_timeout", "response_timeout", "stream_timeout"):
                with self.assertRaisesRegex(ValueError, name):
                    Client("http://a", **{name: seconds})  # type: ignore[arg-type]
        with tempfile.NamedTemporaryFile() as empty:
            for path in ("/nonexistent", "/", empty.name):
                with self.assertRaisesRegex(ValueError, f"ca_file is '{path}'"):
                    Client("https://a", ca_file=path)
        self.assertEqual(repr(Client("http://a:1/", KEY)), "Client('http://a:1')")

    def test_asynchronous_client_repeats_too(self) -> None:
        waited: list[float] = []

        async def sleep(seconds: float) -> None:
            waited.append(seconds)

        async def run(url: str) -> object:
            async with AsyncClient(url, KEY) as client:
                return await client.list_agents()

        with ScriptedServer(b"", BUSY, response(200)) as server:
            with patch("saggar_client._async_transport.anyio.sleep", sleep):
                self.assertEqual(asyncio.run(run(server.url)), {})
        self.assertEqual((len(waited), waited[1]), (2, 2))
