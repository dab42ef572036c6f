"""Calls every operation."""

import base64
import time
from collections.abc import Callable
from typing import Any, ClassVar

from saggar_client import ApiError, Client

from .server import SECRET, Server


class Recorder(Client):
    """A client that notes which methods were called."""

    called: ClassVar[set[str]] = set()

    def __getattribute__(self, name: str) -> Any:
        Recorder.called.add(name)
        return super().__getattribute__(name)


def encode(text: bytes) -> str:
    return base64.b64encode(text).decode()


def wait_until(is_met: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_met():
        assert time.monotonic() < end, "not within a minute"
        time.sleep(0.02)


def call_all(server: Server, folder: str) -> set[str]:
    """Calls every operation, and returns the names of the methods."""
    with Recorder(server.url, server.key) as client, Recorder(server.url, SECRET) as internal:
        check_server(client, internal)
        check_agents(client, folder)
        session = client.create_session({"agent": "hello", "extraEnv": {"A": "1"}})["session"]["id"]
        check_session(client, session)
        check_files(client, session)
        check_network(client, session)
        check_quarantine(client, session)
        check_changes(client, session)
        check_queue(client)
        assert client.end_session(session)["session"]["status"] == "ended"
        assert client.delete_agent("hello") == {"ok": True}
    return Recorder.called


def check_server(client: Recorder, internal: Recorder) -> None:
    assert client.health()["status"] == "ok"
    assert client.live() == {"ok": True}
    assert client.get_document() == client.get_document_of_ash()
    assert client.get_document_page().startswith("<!DOCTYPE html>")
    assert "saggar" in client.get_metrics() or "ash" in client.get_metrics()
    tenant = internal.create_tenant_api_key({"tenantId": "other"})
    assert tenant["key"]
    key = client.create_api_key({"label": "ci", "scope": "read"})
    assert key["id"] in [found["id"] for found in client.list_api_keys()["keys"]]
    assert client.delete_api_key(key["id"]) == {"ok": True}
    stored = client.store_credential({"type": "custom", "key": "secret"})["credential"]
    assert [found["id"] for found in client.list_credentials()["credentials"]] == [stored["id"]]
    assert client.delete_credential(stored["id"]) == {"ok": True}


def check_agents(client: Recorder, folder: str) -> None:
    assert client.deploy_agent({"name": "hello", "path": folder})["agent"]["version"] == 1
    client.deploy_agent({"name": "own", "systemPrompt": "Be brief.", "files": []})
    assert [agent["name"] for agent in client.list_agents()["agents"]] == ["hello", "own"]
    assert client.get_agent("own")["agent"]["name"] == "own"
    assert client.update_agent("own", {"env": {"B": "2"}})["agent"]["env"] == {"B": "***"}
    client.update_agent_config("own", {"model": "m", "later": [1]})
    assert client.get_agent_config("own")["config"]["later"] == [1]
    path, content = "a b/ü#?.txt", b"one\n"
    client.upload_agent_files("own", {"files": [{"path": path, "content": encode(content)}]})
    assert path in [file["path"] for file in client.list_agent_files("own")["files"]]
    assert client.get_agent_file("own", path)["content"] == "one\n"
    assert client.get_agent_file("own", path, format="json")["path"] == path
    assert client.get_agent_file("own", path, format="raw") == content
    assert client.delete_agent_file("own", path)["deleted"] is True
    version = client.create_agent_version("own", {"systemPrompt": "Be kind."})["version"]
    number = str(version["versionNumber"])
    assert client.get_agent_version("own", number)["version"]["id"] == version["id"]
    assert client.update_agent_version("own", number, {"releaseNotes": "n"})["version"]["releaseNotes"] == "n"
    assert client.activate_agent_version("own", number)["activated"] is True
    assert len(client.list_agent_versions("own")["versions"]) >= 1
    assert client.delete_agent_version("own", number) == {"ok": True}
    client.delete_agent("own")
    try:
        client.get_agent("own")
    except ApiError as error:
        assert error.status == 404 and "own" not in repr(client) and error.message, error
    else:
        raise AssertionError("a deleted agent was returned")


def check_session(client: Recorder, session: str) -> None:
    assert session in [found["id"] for found in client.list_sessions(agent="hello", limit=10)["sessions"]]
    assert client.get_session(session)["session"]["agentName"] == "hello"
    events = list(client.send_message(session, {"content": "hi"}))
    assert (events[0]["event"], events[-1]["event"]) == ("session_start", "done"), events
    with client.stream_session(session) as stream:
        assert [next(stream) for _ in events[1:]][1:] == events[1:-1]
    assert client.list_messages(session, limit=5)["messages"]
    assert client.list_session_events(session, type="turn_complete")["events"]
    assert client.update_session_config(session, {"model": "m"})["session"]["id"] == session
    assert client.get_session_logs(session, after=0)["logs"] is not None
    assert client.exec(session, {"command": "echo $A"})["stdout"] == "1\n"
    assert client.interrupt_session(session) == {"ok": True}
    assert client.pause_session(session)["session"]["status"] == "paused"
    assert client.resume_session(session)["session"]["status"] == "active"
    answer_permission(client, session)
    fork = client.fork_session(session)["session"]
    assert fork["parentSessionId"] == session
    client.end_session(fork["id"])
    snapshot = client.create_snapshot(session)["snapshot"]
    assert [found["name"] for found in client.list_snapshots(session)["snapshots"]] == [snapshot["name"]]
    assert client.delete_snapshot(session, snapshot["name"]) == {"ok": True}
    assert client.list_usage_events(session_id=session)["events"] is not None
    assert client.get_usage_stats(agent_name="hello")["stats"]["totalMessages"] >= 1
    assert client.get_session_usage(session)["usage"]["sandbox"] is not None
    assert client.get_analytics()["agents"]["total"] >= 1


def answer_permission(client: Recorder, session: str) -> None:
    seen = []
    for event in client.send_message(session, {"content": "ask: echo ran >> ran"}):
        seen.append(event["event"])
        if event["event"] == "permission_request":
            request = event["data"]
            assert [found["id"] for found in client.list_permissions(session)["permissions"]] == [request["id"]]
            assert client.answer_permission(session, request["id"], {"behavior": "allow"}) == {"ok": True}
    assert "permission_resolved" in seen and seen[-1] == "done", seen
    assert client.get_session_file(session, "ran") == b"ran\n"


def check_files(client: Recorder, session: str) -> None:
    path, content = "up/ü b%.json", b'{"a": 1}\n'
    results = client.write_session_files(session, {"files": [{"path": path, "content": encode(content)}]})
    assert len(results["files"]) == 1, results
    assert path in [file["path"] for file in client.get_session_files(session, include_hidden=False)["files"]]
    assert client.get_session_file(session, path) == content
    assert client.get_session_file(session, path, format="json")["content"] == content.decode()
    assert client.delete_session_file(session, path)["deleted"] is True
    archive = client.download_workspace(session)
    assert archive.startswith(b"\x1f\x8b")
    assert client.upload_workspace(session, {"bundle": encode(archive)})
    attachment = client.upload_attachment(session, {"filename": "a.txt", "content": encode(b"one")})["attachment"]
    assert [found["id"] for found in client.list_attachments(session)["attachments"]] == [attachment["id"]]
    assert client.download_attachment(attachment["id"]) == b"one"
    assert client.delete_attachment(attachment["id"]) == {"ok": True}


def check_network(client: Recorder, session: str) -> None:
    network = client.get_session_network(session)
    assert (network["mode"], network["allow"]) == ("policy", ["192.0.2.1:80"]), network
    assert client.allow_hosts(session, {"allow": ["192.0.2.1:81"]}) == {"ok": True}
    assert client.get_session_network(session)["allow"] == ["192.0.2.1:80", "192.0.2.1:81"]


def check_quarantine(client: Recorder, session: str) -> None:
    list(client.send_message(session, {"content": "run: echo x > .bashrc; echo x > .envrc"}))
    client.stop_session(session)
    files = client.list_quarantine(session)["files"]
    assert sorted(file["path"] for file in files) == [".bashrc", ".envrc"], files
    assert client.release_quarantine(session, {"action": "restore", "names": [".bashrc"]}) == {"ok": True}
    assert client.get_session_file(session, ".bashrc") == b"x\n"
    assert client.release_quarantine(session, {"action": "remove"}) == {"ok": True}
    assert client.list_quarantine(session)["files"] == []
    client.resume_session(session)


def check_changes(client: Recorder, session: str) -> None:
    client.stop_session(session)
    changed = [change["path"] for change in client.get_session_diff(session)["files"]]
    assert "ran" in changed, changed
    assert "+ran" in client.get_session_diff(session, format="patch")
    assert client.discard_changes(session, {"paths": ["ran"]}) == {"ok": True}
    rest = [change["path"] for change in client.get_session_diff(session)["files"]]
    assert "ran" not in rest, rest
    # The folder of the agent belongs to the operator: all changes are removed before they are applied.
    client.discard_changes(session, {})
    assert client.apply_changes(session, {}) == {"ok": True}
    client.resume_session(session)


def check_queue(client: Recorder) -> None:
    item = client.enqueue({"agentName": "hello", "prompt": "hi"})["item"]
    wait_until(lambda: client.get_queue_item(item["id"])["item"]["status"] == "completed")
    assert [found["id"] for found in client.list_queue_items(limit=5)["items"]] == [item["id"]]
    assert client.get_queue_stats()["stats"]["completed"] == 1
    try:
        client.cancel_queue_item(item["id"])
    except ApiError as error:
        assert error.status == 400, error
    else:
        raise AssertionError("a completed item was cancelled")
    session = client.get_queue_item(item["id"])["item"]["sessionId"]
    assert session is not None
    client.end_session(session)
