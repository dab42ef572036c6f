"""Calls every method of the published Python client of Ash, and the functions that it generates for the routes.

Arguments: the URL of a server, an API key, and the folder of the demo agent. It prints a line for each call.
"""

import asyncio
import base64
import importlib
import sys
import uuid

from ash_sdk import AshClient, AuthenticatedClient

url, key, folder = sys.argv[1:]
client = AshClient(url, token=key)


def passed(name):
    print(f"passed {name}", flush=True)


def check(condition, what):
    if not condition:
        sys.exit(f"failed: {what!r}")


def collect(events):
    return [(type(event).__name__, event) for event in events]


def high_level():
    check(client.health()["status"] == "ok", "health")
    passed("health")
    agent = client.deploy_agent("hello", folder)
    check(agent.name == "hello" and agent.version == 1, agent)
    passed("deploy_agent")
    check([found.name for found in client.list_agents()] == ["hello"], "list_agents")
    passed("list_agents")
    check(client.get_agent("hello").id == agent.id, "get_agent")
    passed("get_agent")

    session = client.create_session(
        "hello",
        extra_env={"A": "1"},
        model="m",
        system_prompt="Own prompt.",
        permission_mode="default",
        allowed_tools=["Bash"],
        disallowed_tools=["Write"],
        mcp_servers={"web": {"url": "http://127.0.0.1:9/mcp"}},
        betas=["b"],
        subagents={"helper": {"description": "d", "prompt": "p"}},
        initial_agent="helper",
    )
    check(session.status == "active", session)
    passed("create_session")
    events = collect(client.send_message_stream(session.id, "my name is Ann", include_partial_messages=True))
    names = [name for name, _ in events]
    check(names[0] == "SessionStartEvent" and names[-1] == "DoneEvent" and "MessageEvent" in names, names)
    passed("send_message_stream")

    async def stream():
        options = {"max_turns": 3, "effort": "low", "thinking": {"type": "disabled"}}
        return [event async for event in client.asend_message_stream(session.id, "recall", **options)]

    events = asyncio.run(stream())
    check(any("my name is Ann" in str(event) for event in events), events)
    passed("asend_message_stream")
    check(str(session.id) in [str(found.id) for found in client.list_sessions(agent="hello")], "list_sessions")
    passed("list_sessions")
    check(client.get_session(session.id).id == session.id, "get_session")
    passed("get_session")

    for method, status in [("pause", "paused"), ("resume", "active"), ("stop", "stopped"), ("resume", "active")]:
        changed = getattr(client, f"{method}_session")(session.id)
        check(changed.status == status, changed)
        passed(f"{method}_session")
    fork = client.fork_session(session.id)
    check(fork.status == "paused" and str(fork.parent_session_id) == str(session.id), fork)
    passed("fork_session")
    client.resume_session(fork.id)
    events = collect(client.send_message_stream(fork.id, "recall"))
    check(any("my name is Ann" in str(event) for _, event in events), events)
    check(client.end_session(fork.id).status == "ended", "end_session")
    passed("end_session")
    return session


def generated(session):
    """The low-level functions: the server's answers must have the fields that they require."""
    low = AuthenticatedClient(base_url=url, token=key, raise_on_unexpected_status=True)
    id = session.id if isinstance(session.id, uuid.UUID) else uuid.UUID(str(session.id))

    def call(module, status=200, **arguments):
        function = importlib.import_module(f"ash_sdk.api.{module}").sync_detailed
        response = function(client=low, **arguments)
        check(response.status_code == status, (module, response))
        passed(module)
        return response.parsed

    def body(module, name, value):
        return getattr(importlib.import_module(f"ash_sdk.models.{module}"), name).from_dict(value)

    call("health.get_health")
    call("agents.get_api_agents")
    call("agents.get_api_agents_name", name="hello")
    call("agents.get_api_agents_name_files", name="hello")
    call("sessions.get_api_sessions")
    call("sessions.get_api_sessions_id", id=id)
    exec_body = {"command": "echo out"}
    found = call(
        "sessions.post_api_sessions_id_exec",
        id=id,
        body=body("post_api_sessions_id_exec_body", "PostApiSessionsIdExecBody", exec_body),
    )
    check(found.stdout == "out\n", found)
    files = {"files": [{"path": "up/a.txt", "content": base64.b64encode(b"one").decode()}]}
    call(
        "sessions.post_api_sessions_id_files",
        id=id,
        body=body("post_api_sessions_id_files_body", "PostApiSessionsIdFilesBody", files),
    )
    listed = call("sessions.get_api_sessions_id_files", id=id)
    check("up/a.txt" in [file.path for file in listed.files], listed)
    check(call("sessions.get_api_sessions_id_messages", id=id).messages, "messages")
    check(call("sessions.get_api_sessions_id_events", id=id).events, "events")
    call("sessions.get_api_sessions_id_logs", id=id)
    config = body("patch_api_sessions_id_config_body", "PatchApiSessionsIdConfigBody", {"model": "n"})
    call("sessions.patch_api_sessions_id_config", id=id, body=config)
    secret = {"type": "custom", "key": "secret", "label": "test"}
    stored = call(
        "credentials.post_api_credentials",
        201,
        body=body("post_api_credentials_body", "PostApiCredentialsBody", secret),
    )
    listed = call("credentials.get_api_credentials")
    check([found.id for found in listed.credentials] == [stored.credential.id], listed)
    file = {"filename": "a.txt", "content": base64.b64encode(b"one").decode()}
    file = body("post_api_sessions_id_attachments_body", "PostApiSessionsIdAttachmentsBody", file)
    call("sessions.post_api_sessions_id_attachments", 201, id=id, body=file)
    listed = call("sessions.get_api_sessions_id_attachments", id=id)
    check([found.filename for found in listed.attachments] == ["a.txt"], listed)
    item = {"agentName": "hello", "prompt": "hi"}
    item = call("queue.post_api_queue", 201, body=body("post_api_queue_body", "PostApiQueueBody", item)).item
    check(call("queue.get_api_queue_id", id=item.id).item.agent_name == "hello", item)
    check(len(call("queue.get_api_queue").items) == 1, "get_api_queue")
    call("queue.get_api_queue_stats")


session = high_level()
generated(session)
check(client.end_session(session.id).status == "ended", "end_session")
client.delete_agent("hello")
check(client.list_agents() == [], "delete_agent")
passed("delete_agent")
