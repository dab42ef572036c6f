# Generated from server/openapi.json by `python3 -m generator`; do not edit.
"""The synchronous client."""

from typing import Any, Literal, cast, overload

from . import types
from ._base import Base
from ._transport import EventStream
from ._request import Request, fill_path, new_key, parse_json


class Client(Base):
    """The API of a saggar-server, with one method for each operation."""

    def list_agents(self) -> types.AgentList:
        """Lists the agents by name."""
        response = self._transport.call(Request("GET", "/api/agents"))
        return cast(types.AgentList, parse_json(response))

    def deploy_agent(self, body: types.DeployAgentRequest, /) -> types.AgentResponse:
        """Deploys an agent, or the next version of it."""
        response = self._transport.call(Request("POST", "/api/agents", body=body))
        return cast(types.AgentResponse, parse_json(response))

    def get_agent(self, name: str, /) -> types.AgentResponse:
        """Returns an agent."""
        response = self._transport.call(Request("GET", fill_path("/api/agents/{name}", name=name)))
        return cast(types.AgentResponse, parse_json(response))

    def delete_agent(self, name: str, /) -> types.Confirmation:
        """Deletes an agent with its sessions, their sandboxes and their files."""
        response = self._transport.call(
            Request(
                "DELETE",
                fill_path("/api/agents/{name}", name=name),
            )
        )
        return cast(types.Confirmation, parse_json(response))

    def update_agent(self, name: str, body: types.UpdateAgentRequest, /) -> types.AgentResponse:
        """Updates an agent."""
        response = self._transport.call(
            Request(
                "PATCH",
                fill_path("/api/agents/{name}", name=name),
                body=body,
            )
        )
        return cast(types.AgentResponse, parse_json(response))

    def get_agent_config(self, name: str, /) -> types.AgentConfig:
        """Returns the configuration of an agent."""
        response = self._transport.call(
            Request(
                "GET",
                fill_path("/api/agents/{name}/config", name=name),
            )
        )
        return cast(types.AgentConfig, parse_json(response))

    def update_agent_config(self, name: str, body: dict[str, Any], /) -> types.AgentConfig:
        """Sets each top-level key of the body in the configuration of an agent."""
        response = self._transport.call(
            Request(
                "PATCH",
                fill_path("/api/agents/{name}/config", name=name),
                body=body,
            )
        )
        return cast(types.AgentConfig, parse_json(response))

    def list_agent_files(self, name: str, /) -> types.AgentFileList:
        """Lists the files of an agent."""
        response = self._transport.call(
            Request(
                "GET",
                fill_path("/api/agents/{name}/files", name=name),
            )
        )
        return cast(types.AgentFileList, parse_json(response))

    def upload_agent_files(self, name: str, body: types.UploadAgentFilesRequest, /) -> types.WrittenFiles:
        """Creates or replaces files of an agent."""
        response = self._transport.call(
            Request(
                "POST",
                fill_path("/api/agents/{name}/files", name=name),
                body=body,
            )
        )
        return cast(types.WrittenFiles, parse_json(response))

    @overload
    def get_agent_file(self, name: str, path: str, /, *, format: Literal["raw"]) -> bytes:
        ...

    @overload
    def get_agent_file(
        self,
        name: str,
        path: str,
        /,
        *,
        format: Literal["json"] | None = None,
    ) -> types.AgentFile:
        ...

    def get_agent_file(
        self,
        name: str,
        path: str,
        /,
        *,
        format: Literal["raw", "json"] | None = None,
    ) -> bytes | types.AgentFile:
        """Returns a file of an agent."""
        response = self._transport.call(
            Request(
                "GET",
                fill_path("/api/agents/{name}/files/{path}", name=name, path=path),
                query={"format": format},
            )
        )
        if format == "raw":
            return response.content
        return cast(types.AgentFile, parse_json(response))

    def delete_agent_file(self, name: str, path: str, /) -> types.DeletedFile:
        """Deletes a file of an agent."""
        response = self._transport.call(
            Request(
                "DELETE",
                fill_path("/api/agents/{name}/files/{path}", name=name, path=path),
            )
        )
        return cast(types.DeletedFile, parse_json(response))

    def list_agent_versions(self, name: str, /) -> types.AgentVersionList:
        """Lists the versions of an agent, the newest first."""
        response = self._transport.call(
            Request(
                "GET",
                fill_path("/api/agents/{name}/versions", name=name),
            )
        )
        return cast(types.AgentVersionList, parse_json(response))

    def create_agent_version(self, name: str, body: types.AgentVersionRequest, /) -> types.AgentVersionResponse:
        """Creates a version of an agent."""
        response = self._transport.call(
            Request(
                "POST",
                fill_path("/api/agents/{name}/versions", name=name),
                body=body,
            )
        )
        return cast(types.AgentVersionResponse, parse_json(response))

    def get_agent_version(self, name: str, version: str, /) -> types.AgentVersionResponse:
        """Returns a version of an agent."""
        response = self._transport.call(
            Request(
                "GET",
                fill_path("/api/agents/{name}/versions/{version}", name=name, version=version),
            )
        )
        return cast(types.AgentVersionResponse, parse_json(response))

    def delete_agent_version(self, name: str, version: str, /) -> types.Confirmation:
        """Deletes a version of an agent."""
        response = self._transport.call(
            Request(
                "DELETE",
                fill_path("/api/agents/{name}/versions/{version}", name=name, version=version),
            )
        )
        return cast(types.Confirmation, parse_json(response))

    def update_agent_version(
        self,
        name: str,
        version: str,
        body: types.AgentVersionRequest,
        /,
    ) -> types.AgentVersionResponse:
        """Updates a version of an agent."""
        response = self._transport.call(
            Request(
                "PATCH",
                fill_path("/api/agents/{name}/versions/{version}", name=name, version=version),
                body=body,
            )
        )
        return cast(types.AgentVersionResponse, parse_json(response))

    def activate_agent_version(self, name: str, version: str, /) -> types.ActivatedVersion:
        """Makes a version the active one of its agent."""
        response = self._transport.call(
            Request(
                "POST",
                fill_path("/api/agents/{name}/versions/{version}/activate", name=name, version=version),
            )
        )
        return cast(types.ActivatedVersion, parse_json(response))

    def get_analytics(self, /, *, after: str | None = None, before: str | None = None) -> types.Analytics:
        """Returns the number of agents, the sessions that were created in a period, and its usage."""
        response = self._transport.call(
            Request(
                "GET",
                "/api/analytics",
                query={"after": after, "before": before},
            )
        )
        return cast(types.Analytics, parse_json(response))

    def list_api_keys(self) -> types.ApiKeyList:
        """Lists the API keys of the tenant."""
        response = self._transport.call(Request("GET", "/api/api-keys"))
        return cast(types.ApiKeyList, parse_json(response))

    def create_api_key(self, body: types.CreateApiKeyRequest, /) -> types.NewApiKey:
        """Creates an API key of the same tenant."""
        response = self._transport.call(Request("POST", "/api/api-keys", body=body))
        return cast(types.NewApiKey, parse_json(response))

    def delete_api_key(self, id: str, /) -> types.Confirmation:
        """Deletes an API key."""
        response = self._transport.call(Request("DELETE", fill_path("/api/api-keys/{id}", id=id)))
        return cast(types.Confirmation, parse_json(response))

    def download_attachment(self, id: str, /) -> bytes:
        """Returns the bytes of an attachment."""
        response = self._transport.call(Request("GET", fill_path("/api/attachments/{id}", id=id)))
        return response.content

    def delete_attachment(self, id: str, /) -> types.Confirmation:
        """Deletes an attachment."""
        response = self._transport.call(Request("DELETE", fill_path("/api/attachments/{id}", id=id)))
        return cast(types.Confirmation, parse_json(response))

    def list_credentials(self) -> types.CredentialList:
        """Lists the credentials, without their secrets."""
        response = self._transport.call(Request("GET", "/api/credentials"))
        return cast(types.CredentialList, parse_json(response))

    def store_credential(self, body: types.StoreCredentialRequest, /) -> types.CredentialResponse:
        """Stores a credential, encrypted."""
        response = self._transport.call(Request("POST", "/api/credentials", body=body))
        return cast(types.CredentialResponse, parse_json(response))

    def delete_credential(self, id: str, /) -> types.Confirmation:
        """Deletes a credential."""
        response = self._transport.call(Request("DELETE", fill_path("/api/credentials/{id}", id=id)))
        return cast(types.Confirmation, parse_json(response))

    def create_tenant_api_key(self, body: types.CreateTenantApiKeyRequest, /) -> types.TenantApiKey:
        """Creates an API key of any tenant."""
        response = self._transport.call(Request("POST", "/api/internal/api-keys", body=body))
        return cast(types.TenantApiKey, parse_json(response))

    def list_queue_items(self, /, *, status: str | None = None, limit: int | None = None) -> types.QueueItemList:
        """Lists the items of the queue, the newest first."""
        response = self._transport.call(
            Request(
                "GET",
                "/api/queue",
                query={"status": status, "limit": limit},
            )
        )
        return cast(types.QueueItemList, parse_json(response))

    def enqueue(self, body: types.EnqueueRequest, /) -> types.QueueItemResponse:
        """Adds a message to the queue."""
        response = self._transport.call(Request("POST", "/api/queue", body=body))
        return cast(types.QueueItemResponse, parse_json(response))

    def get_queue_stats(self) -> types.QueueStats:
        """Returns the number of items with each status."""
        response = self._transport.call(Request("GET", "/api/queue/stats"))
        return cast(types.QueueStats, parse_json(response))

    def get_queue_item(self, id: str, /) -> types.QueueItemResponse:
        """Returns an item of the queue."""
        response = self._transport.call(Request("GET", fill_path("/api/queue/{id}", id=id)))
        return cast(types.QueueItemResponse, parse_json(response))

    def cancel_queue_item(self, id: str, /) -> types.QueueItemResponse:
        """Cancels a pending item of the queue."""
        response = self._transport.call(Request("DELETE", fill_path("/api/queue/{id}", id=id)))
        return cast(types.QueueItemResponse, parse_json(response))

    def list_sessions(
        self,
        /,
        *,
        agent: str | None = None,
        status: str | None = None,
        limit: int | None = None,
        offset: int | None = None,
    ) -> types.SessionList:
        """Lists the sessions, the newest first."""
        response = self._transport.call(
            Request(
                "GET",
                "/api/sessions",
                query={"agent": agent, "status": status, "limit": limit, "offset": offset},
            )
        )
        return cast(types.SessionList, parse_json(response))

    def create_session(self, body: types.CreateSessionRequest, /) -> types.SessionResponse:
        """Starts an agent in a sandbox."""
        response = self._transport.call(Request("POST", "/api/sessions", body=body))
        return cast(types.SessionResponse, parse_json(response))

    def get_session(self, id: str, /) -> types.SessionResponse:
        """Returns a session."""
        response = self._transport.call(Request("GET", fill_path("/api/sessions/{id}", id=id)))
        return cast(types.SessionResponse, parse_json(response))

    def end_session(self, id: str, /) -> types.SessionResponse:
        """Ends a session permanently."""
        response = self._transport.call(Request("DELETE", fill_path("/api/sessions/{id}", id=id)))
        return cast(types.SessionResponse, parse_json(response))

    def apply_changes(self, id: str, body: types.ChangePaths, /) -> types.Confirmation:
        """Applies changes of the workspace to the folder of the session."""
        response = self._transport.call(
            Request(
                "POST",
                fill_path("/api/sessions/{id}/apply", id=id),
                body=body,
            )
        )
        return cast(types.Confirmation, parse_json(response))

    def list_attachments(self, id: str, /) -> types.AttachmentList:
        """Lists the attachments of a session, the oldest first."""
        response = self._transport.call(
            Request(
                "GET",
                fill_path("/api/sessions/{id}/attachments", id=id),
            )
        )
        return cast(types.AttachmentList, parse_json(response))

    def upload_attachment(self, id: str, body: types.UploadAttachmentRequest, /) -> types.NewAttachmentResponse:
        """Adds a file to a session, and copies it into the workspace."""
        response = self._transport.call(
            Request(
                "POST",
                fill_path("/api/sessions/{id}/attachments", id=id),
                body=body,
            )
        )
        return cast(types.NewAttachmentResponse, parse_json(response))

    def update_session_config(self, id: str, body: dict[str, Any], /) -> types.SessionResponse:
        """Changes options of the queries of a session."""
        response = self._transport.call(
            Request(
                "PATCH",
                fill_path("/api/sessions/{id}/config", id=id),
                body=body,
            )
        )
        return cast(types.SessionResponse, parse_json(response))

    @overload
    def get_session_diff(self, id: str, /, *, format: Literal["patch"]) -> str:
        ...

    @overload
    def get_session_diff(self, id: str, /, *, format: None = None) -> types.ChangeList:
        ...

    def get_session_diff(self, id: str, /, *, format: Literal["patch"] | None = None) -> str | types.ChangeList:
        """Lists the changes of the workspace."""
        response = self._transport.call(
            Request(
                "GET",
                fill_path("/api/sessions/{id}/diff", id=id),
                query={"format": format},
            )
        )
        if format == "patch":
            return response.text
        return cast(types.ChangeList, parse_json(response))

    def discard_changes(self, id: str, body: types.ChangePaths, /) -> types.Confirmation:
        """Removes changes from the workspace."""
        response = self._transport.call(
            Request(
                "POST",
                fill_path("/api/sessions/{id}/discard", id=id),
                body=body,
            )
        )
        return cast(types.Confirmation, parse_json(response))

    def list_session_events(
        self,
        id: str,
        /,
        *,
        limit: int | None = None,
        after: int | None = None,
        type: str | None = None,
    ) -> types.SessionEventList:
        """Lists the stored events of a session."""
        response = self._transport.call(
            Request(
                "GET",
                fill_path("/api/sessions/{id}/events", id=id),
                query={"limit": limit, "after": after, "type": type},
            )
        )
        return cast(types.SessionEventList, parse_json(response))

    def exec(self, id: str, body: types.ExecRequest, /) -> types.ExecResponse:
        """Runs a shell command in the sandbox, concurrently with the agent."""
        response = self._transport.call(
            Request(
                "POST",
                fill_path("/api/sessions/{id}/exec", id=id),
                body=body,
            )
        )
        return cast(types.ExecResponse, parse_json(response))

    def get_session_files(self, id: str, /, *, include_hidden: bool | None = None) -> types.SessionFileList:
        """Lists the files of the workspace of a session."""
        response = self._transport.call(
            Request(
                "GET",
                fill_path("/api/sessions/{id}/files", id=id),
                query={"includeHidden": include_hidden},
            )
        )
        return cast(types.SessionFileList, parse_json(response))

    def write_session_files(self, id: str, body: types.WriteFilesRequest, /) -> types.WriteResults:
        """Writes files into the workspace, each with a result of its own."""
        response = self._transport.call(
            Request(
                "POST",
                fill_path("/api/sessions/{id}/files", id=id),
                body=body,
            )
        )
        return cast(types.WriteResults, parse_json(response))

    @overload
    def get_session_file(self, id: str, path: str, /, *, format: Literal["json"]) -> types.SessionFile:
        ...

    @overload
    def get_session_file(self, id: str, path: str, /, *, format: None = None) -> bytes:
        ...

    def get_session_file(
        self,
        id: str,
        path: str,
        /,
        *,
        format: Literal["json"] | None = None,
    ) -> types.SessionFile | bytes:
        """Returns a file of the workspace."""
        response = self._transport.call(
            Request(
                "GET",
                fill_path("/api/sessions/{id}/files/{path}", id=id, path=path),
                query={"format": format},
            )
        )
        if format == "json":
            return cast(types.SessionFile, parse_json(response))
        return response.content

    def delete_session_file(self, id: str, path: str, /) -> types.DeletedSessionFile:
        """Deletes a file of the workspace."""
        response = self._transport.call(
            Request(
                "DELETE",
                fill_path("/api/sessions/{id}/files/{path}", id=id, path=path),
            )
        )
        return cast(types.DeletedSessionFile, parse_json(response))

    def fork_session(self, id: str, /) -> types.SessionResponse:
        """Creates a session from another one."""
        response = self._transport.call(Request("POST", fill_path("/api/sessions/{id}/fork", id=id)))
        return cast(types.SessionResponse, parse_json(response))

    def interrupt_session(self, id: str, /) -> types.Confirmation:
        """Aborts the current turn of a session."""
        response = self._transport.call(
            Request(
                "POST",
                fill_path("/api/sessions/{id}/interrupt", id=id),
            )
        )
        return cast(types.Confirmation, parse_json(response))

    def get_session_logs(self, id: str, /, *, after: int | None = None) -> types.SessionLogs:
        """Lists the log of a running session."""
        response = self._transport.call(
            Request(
                "GET",
                fill_path("/api/sessions/{id}/logs", id=id),
                query={"after": after},
            )
        )
        return cast(types.SessionLogs, parse_json(response))

    def list_messages(
        self,
        id: str,
        /,
        *,
        limit: int | None = None,
        after: int | None = None,
    ) -> types.MessageList:
        """Lists the messages of a session."""
        response = self._transport.call(
            Request(
                "GET",
                fill_path("/api/sessions/{id}/messages", id=id),
                query={"limit": limit, "after": after},
            )
        )
        return cast(types.MessageList, parse_json(response))

    def send_message(
        self,
        id: str,
        body: types.SendMessageRequest,
        /,
        *,
        idempotency_key: str | None = None,
    ) -> EventStream:
        """Sends a message and streams its turn."""
        idempotency_key = new_key() if idempotency_key is None else idempotency_key
        return self._transport.stream_turn(
            Request(
                "POST",
                fill_path("/api/sessions/{id}/messages", id=id),
                headers={"idempotency-key": idempotency_key},
                body=body,
            )
        )

    def get_session_network(self, id: str, /) -> types.SessionNetwork:
        """Returns the network of a session."""
        response = self._transport.call(
            Request(
                "GET",
                fill_path("/api/sessions/{id}/network", id=id),
            )
        )
        return cast(types.SessionNetwork, parse_json(response))

    def allow_hosts(self, id: str, body: types.AllowHostsRequest, /) -> types.Confirmation:
        """Allows a session to connect to more hosts."""
        response = self._transport.call(
            Request(
                "POST",
                fill_path("/api/sessions/{id}/network", id=id),
                body=body,
            )
        )
        return cast(types.Confirmation, parse_json(response))

    def pause_session(self, id: str, /) -> types.SessionResponse:
        """Freezes the processes of a session."""
        response = self._transport.call(
            Request(
                "POST",
                fill_path("/api/sessions/{id}/pause", id=id),
            )
        )
        return cast(types.SessionResponse, parse_json(response))

    def list_permissions(self, id: str, /) -> types.PermissionList:
        """Lists the open permission requests of a session."""
        response = self._transport.call(
            Request(
                "GET",
                fill_path("/api/sessions/{id}/permissions", id=id),
            )
        )
        return cast(types.PermissionList, parse_json(response))

    def answer_permission(
        self,
        id: str,
        permission: str,
        body: types.AnswerPermissionRequest,
        /,
    ) -> types.Confirmation:
        """Answers a permission request."""
        response = self._transport.call(
            Request(
                "POST",
                fill_path("/api/sessions/{id}/permissions/{permission}", id=id, permission=permission),
                body=body,
            )
        )
        return cast(types.Confirmation, parse_json(response))

    def list_quarantine(self, id: str, /) -> types.QuarantineList:
        """Lists the files in quarantine."""
        response = self._transport.call(
            Request(
                "GET",
                fill_path("/api/sessions/{id}/quarantine", id=id),
            )
        )
        return cast(types.QuarantineList, parse_json(response))

    def release_quarantine(self, id: str, body: types.ReleaseQuarantineRequest, /) -> types.Confirmation:
        """Restores files from quarantine, or removes them."""
        response = self._transport.call(
            Request(
                "POST",
                fill_path("/api/sessions/{id}/quarantine", id=id),
                body=body,
            )
        )
        return cast(types.Confirmation, parse_json(response))

    def resume_session(self, id: str, /) -> types.SessionResponse:
        """Thaws a session, or starts it in a new sandbox."""
        response = self._transport.call(
            Request(
                "POST",
                fill_path("/api/sessions/{id}/resume", id=id),
            )
        )
        return cast(types.SessionResponse, parse_json(response))

    def list_snapshots(self, id: str, /) -> types.SnapshotList:
        """Lists the snapshots of a session."""
        response = self._transport.call(
            Request(
                "GET",
                fill_path("/api/sessions/{id}/snapshots", id=id),
            )
        )
        return cast(types.SnapshotList, parse_json(response))

    def create_snapshot(self, id: str, /) -> types.SnapshotResponse:
        """Takes a snapshot of a session."""
        response = self._transport.call(
            Request(
                "POST",
                fill_path("/api/sessions/{id}/snapshots", id=id),
            )
        )
        return cast(types.SnapshotResponse, parse_json(response))

    def delete_snapshot(self, id: str, name: str, /) -> types.Confirmation:
        """Deletes a snapshot."""
        response = self._transport.call(
            Request(
                "DELETE",
                fill_path("/api/sessions/{id}/snapshots/{name}", id=id, name=name),
            )
        )
        return cast(types.Confirmation, parse_json(response))

    def stop_session(self, id: str, /) -> types.SessionResponse:
        """Shuts the sandbox of a session down."""
        response = self._transport.call(Request("POST", fill_path("/api/sessions/{id}/stop", id=id)))
        return cast(types.SessionResponse, parse_json(response))

    def stream_session(
        self,
        id: str,
        /,
        *,
        after: int | None = None,
        last_event_id: int | None = None,
    ) -> EventStream:
        """Streams the events of all turns of a session."""
        start = last_event_id if last_event_id is not None else after or 0
        session = Request("GET", fill_path("/api/sessions/{id}", id=id))
        stream = Request("GET", fill_path("/api/sessions/{id}/stream", id=id))
        return self._transport.stream_session(stream, session, start)

    def get_session_usage(self, id: str, /) -> types.SessionUsageResponse:
        """Returns the usage of a session, with the resources that its sandbox uses and their limits."""
        response = self._transport.call(Request("GET", fill_path("/api/sessions/{id}/usage", id=id)))
        return cast(types.SessionUsageResponse, parse_json(response))

    def download_workspace(self, id: str, /) -> bytes:
        """Returns the files of the workspace as an archive."""
        response = self._transport.call(
            Request(
                "GET",
                fill_path("/api/sessions/{id}/workspace", id=id),
            )
        )
        return response.content

    def upload_workspace(self, id: str, body: types.UploadWorkspaceRequest, /) -> types.RestoredWorkspace:
        """Writes the files of an archive into the workspace."""
        response = self._transport.call(
            Request(
                "POST",
                fill_path("/api/sessions/{id}/workspace", id=id),
                body=body,
            )
        )
        return cast(types.RestoredWorkspace, parse_json(response))

    def list_usage_events(
        self,
        /,
        *,
        session_id: str | None = None,
        agent_name: str | None = None,
        after: str | None = None,
        before: str | None = None,
        limit: int | None = None,
    ) -> types.UsageEventList:
        """Lists usage events, the newest first."""
        response = self._transport.call(
            Request(
                "GET",
                "/api/usage",
                query={"sessionId": session_id, "agentName": agent_name, "after": after, "before": before, "limit": limit},
            )
        )
        return cast(types.UsageEventList, parse_json(response))

    def get_usage_stats(
        self,
        /,
        *,
        session_id: str | None = None,
        agent_name: str | None = None,
        after: str | None = None,
        before: str | None = None,
    ) -> types.UsageStatsResponse:
        """Returns the sums of usage events."""
        response = self._transport.call(
            Request(
                "GET",
                "/api/usage/stats",
                query={"sessionId": session_id, "agentName": agent_name, "after": after, "before": before},
            )
        )
        return cast(types.UsageStatsResponse, parse_json(response))

    def get_document_page(self) -> str:
        """Returns this document as a page for people."""
        response = self._transport.call(Request("GET", "/docs"))
        return response.text

    def get_document_of_ash(self) -> dict[str, Any]:
        """Returns this document."""
        response = self._transport.call(Request("GET", "/docs/json"))
        return cast(dict[str, Any], parse_json(response))

    def health(self) -> types.Health:
        """Reports that the server works, with its database."""
        response = self._transport.call(Request("GET", "/health"))
        return cast(types.Health, parse_json(response))

    def live(self) -> types.Confirmation:
        """Reports that the process answers requests, even if the database does not."""
        response = self._transport.call(Request("GET", "/live"))
        return cast(types.Confirmation, parse_json(response))

    def get_metrics(self) -> str:
        """Returns numbers of the server for Prometheus."""
        response = self._transport.call(Request("GET", "/metrics"))
        return response.text

    def get_document(self) -> dict[str, Any]:
        """Returns this document."""
        response = self._transport.call(Request("GET", "/openapi.json"))
        return cast(dict[str, Any], parse_json(response))
