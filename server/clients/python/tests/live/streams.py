"""Turns whose connection is cut, and streams across restarts of the server."""

import asyncio
import threading
from typing import Any

from saggar_client import AsyncClient, Client

from .proxy import CuttingProxy
from .server import Server

COUNT = 60


def check_streams(server: Server, folder: str) -> None:
    with Client(server.url, server.key) as client:
        client.deploy_agent({"name": "streams", "path": folder})
        session = client.create_session({"agent": "streams"})["session"]["id"]
        check_cut_turn(server, client, session)
        asyncio.run(check_cut_turn_async(server, client, session))
        for stop in (server.kill, server.terminate):
            check_restart(server, client, session, stop)
        check_end(client, session)


def cuts() -> list[int]:
    """In the head of the response, and at several places of its events."""
    return [40, 300, 411, 1503, 2749]


def check_turn(client: Client, session: str, events: list[Any], connections: int) -> None:
    """The events are those of the turn, each once and in order."""
    assert connections == len(cuts()) + 1, connections
    assert (events[0]["event"], events[-1]["event"]) == ("session_start", "done")
    with client.stream_session(session, after=events[0]["id"]) as stream:
        next(stream)
        whole = [next(stream) for _ in events[1:]]
    assert events[1:] == whole, (events, whole)
    assert len([event for event in events if event["event"] == "text_delta"]) >= COUNT, events


def check_cut_turn(server: Server, client: Client, session: str) -> None:
    proxy = CuttingProxy(server.port, cuts())
    with Client(proxy.url, server.key) as cut:
        body: Any = {"content": f"count: {COUNT}", "includePartialMessages": True}
        events = list(cut.send_message(session, body))
    check_turn(client, session, events, proxy.connections)


async def check_cut_turn_async(server: Server, client: Client, session: str) -> None:
    proxy = CuttingProxy(server.port, cuts())
    async with AsyncClient(proxy.url, server.key) as cut:
        body: Any = {"content": f"count: {COUNT}", "includePartialMessages": True}
        async with cut.send_message(session, body) as stream:
            events = [event async for event in stream]
        connections = proxy.connections
        assert (await cut.get_session(session))["session"]["id"] == session
    check_turn(client, session, events, connections)


def check_restart(server: Server, client: Client, session: str, stop: Any) -> None:
    """A stream of a session gets a turn before and one after a restart, each once."""
    first = list(client.send_message(session, {"content": "before"}))[1:]
    # However long the restart takes.
    patient = Client(server.url, server.key, stream_attempts=1000)
    with patient, patient.stream_session(session, after=first[0]["id"] - 1) as stream:
        assert next(stream)["event"] == "session_start"
        assert [next(stream) for _ in first] == first
        stop()
        found: list[Any] = []
        reader = threading.Thread(target=lambda: found.extend(read_turn(stream)))
        reader.start()
        server.start()
        second = list(client.send_message(session, {"content": "after"}))[1:]
        reader.join()
    assert found == second, (found, second)


def read_turn(stream: Any) -> Any:
    for event in stream:
        yield event
        if event["event"] == "done":
            return


def check_end(client: Client, session: str) -> None:
    """The stream ends with the sandbox, and not before."""
    with client.stream_session(session) as stream:
        next(stream)
        client.stop_session(session)
        streamed = list(stream)
    assert [event for event in client.stream_session(session)][1:] == streamed
    client.end_session(session)
