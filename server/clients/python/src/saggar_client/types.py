# Generated from server/openapi.json by `python3 -m generator`; do not edit.
"""The objects of the API, as they are on the wire."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict


class ActivatedVersion(TypedDict):
    activated: bool
    versionNumber: int


class Agent(TypedDict):
    """
    An agent. The values of its environment variables are replaced by `***`.
    """

    config: dict[str, Any]
    createdAt: str
    env: dict[str, Any]
    id: str
    name: str
    path: str
    tenantId: str
    updatedAt: str
    version: int


class AgentConfig(TypedDict):
    config: dict[str, Any]
    """
    `model` is the model of new sessions.
    """


class AgentCount(TypedDict):
    total: int


class AgentFile(TypedDict):
    content: str
    path: str
    size: int
    """
    In bytes.
    """


class AgentFileContent(TypedDict):
    """
    A file of an agent.
    """

    content: str
    """
    In base64.
    """
    path: str
    """
    Relative to the folder of the agent.
    """


class AgentList(TypedDict):
    agents: list[Agent]


class AgentResponse(TypedDict):
    agent: Agent


class AgentVersion(TypedDict):
    agentName: str
    createdAt: str
    createdBy: str | None
    id: str
    isActive: bool
    knowledgeFiles: list[str] | None
    name: str
    releaseNotes: str | None
    systemPrompt: str | None
    tenantId: str
    updatedAt: str
    versionNumber: int
    """
    Unique for each agent, from 1.
    """


class AgentVersionList(TypedDict):
    versions: list[AgentVersion]


class AgentVersionResponse(TypedDict):
    version: AgentVersion


class AllowHostsRequest(TypedDict):
    allow: list[str]
    """
    Rules such as `api.example.com:443` (saggar-policy(5), `network.allow`).
    """


class Attachment(TypedDict):
    """
    An attachment in a response.
    """

    createdAt: str
    filename: str
    id: str
    messageId: str
    """
    `unlinked` without a message.
    """
    mimeType: str
    sessionId: str
    size: int
    """
    In bytes.
    """
    tenantId: str


class AttachmentList(TypedDict):
    attachments: list[Attachment]


Behavior: TypeAlias = Literal['allow', 'deny']


BinaryFile: TypeAlias = bytes


class ChangePaths(TypedDict):
    paths: NotRequired[list[str]]
    """
    The changes to settle; all without one.
    """


class ChangedEntry(TypedDict):
    """
    One side of a change.
    """

    kind: str
    """
    The type of the file, such as `file`, `directory` or `symlink`.
    """
    mode: str
    """
    The mode, in octal.
    """
    size: NotRequired[int]
    """
    In bytes, of a regular file.
    """
    target: NotRequired[str]
    """
    The target of a symbolic link.
    """
    targetBytes: NotRequired[str]
    """
    The target in hexadecimal, if it is not UTF-8.
    """


class Confirmation(TypedDict):
    """
    The response to a request without other results.
    """

    ok: bool
    """
    Always true.
    """


class CpuUse(TypedDict):
    """
    Processor time, in microseconds.
    """

    maxUsec: int | None
    """
    The limit for each second; null without one.
    """
    throttledUsec: int | None
    """
    The time for which the limit has stopped programs.
    """
    usageUsec: int


class CreateTenantApiKeyRequest(TypedDict):
    label: NotRequired[str | None]
    tenantId: str
    """
    Letters, digits, `_` and `-`.
    """


CredentialService: TypeAlias = Literal['anthropic', 'openai', 'bedrock', 'custom']
"""
The service of a credential, which decides how sessions use it.
"""


class DeletedFile(TypedDict):
    deleted: bool


class DeletedSessionFile(TypedDict):
    deleted: bool
    path: str


class DeployAgentRequest(TypedDict):
    """
    Body of `POST /api/agents`. Clients of Ash send further fields, which are ignored.
    """

    env: NotRequired[dict[str, str]]
    """
    Environment variables of its sandboxes.
    """
    files: NotRequired[list[AgentFileContent] | None]
    """
    The files of an agent without `path`.
    """
    name: str
    """
    Letters, digits, `_` and `-`.
    """
    path: NotRequired[str | None]
    """
    A folder on the server with a `CLAUDE.md`, absolute or relative to the data directory.
    """
    systemPrompt: NotRequired[str | None]
    """
    The `CLAUDE.md` of an agent without `path`.
    """


Effort: TypeAlias = Literal['low', 'medium', 'high', 'max']


class EnqueueRequest(TypedDict):
    agentName: str
    maxRetries: NotRequired[int | None]
    priority: NotRequired[int | None]
    """
    Items with a higher priority are sent first.
    """
    prompt: str
    """
    The message.
    """
    sessionId: NotRequired[str | None]
    """
    The session to send it in. Without one, a session is created.
    """


class Error(TypedDict):
    """
    The body of an error response.
    """

    code: NotRequired[str]
    """
    `FST_ERR_VALIDATION` if a parameter is invalid.
    """
    error: str
    """
    What failed; the name of the status if there is a message.
    """
    message: NotRequired[str]
    """
    What is invalid in the request, or when it may be repeated.
    """
    statusCode: NotRequired[int]
    """
    The status of the response. It is absent for API keys and internal routes.
    """


class EvaluationCounts(TypedDict):
    """
    Evaluations of Ash are not implemented: the numbers are always 0.
    """

    byStatus: dict[str, int]
    totalRuns: int


class ExceededLimits(TypedDict):
    """
    How often programs have reached each limit.
    """

    cpu: int | None
    memory: int | None
    oomKills: int | None
    """
    Processes that were killed because memory ran out.
    """
    pids: int | None


class ExecRequest(TypedDict):
    command: str
    """
    A command line for the shell.
    """
    timeout: NotRequired[int | None]
    """
    In milliseconds.
    """


class ExecResponse(TypedDict):
    """
    The result of saggar-control(7), of which other fields are left out.
    """

    exitCode: int | None
    """
    Null if the command was killed.
    """
    stderr: str
    stdout: str
    truncated: NotRequired[bool]
    """
    Whether output beyond 10 MiB of a stream was removed; absent if not.
    """


class FileEntry(TypedDict):
    """
    A file in a list.
    """

    modifiedAt: str
    path: str
    size: int
    """
    In bytes.
    """


class HostTraffic(TypedDict):
    """
    The connections to a port of a host.
    """

    connections: int
    """
    Connections that were established.
    """
    host: str | None
    """
    A name or an address; null for the hosts after the first 256, which are counted together.
    """
    port: int | None
    """
    Null for a question to the name service.
    """
    received: int
    """
    Bytes from the host.
    """
    refused: int
    """
    Connections that the rules did not allow.
    """
    sent: int
    """
    Bytes to the host.
    """
    unreachable: int
    """
    Connections to an allowed host that did not answer.
    """


KeyScope: TypeAlias = Literal['read', 'agent', 'admin']
"""
What requests with an API key may do. Each scope includes those before it.
"""


class LimitedUse(TypedDict):
    """
    The use of a resource that has a limit.
    """

    current: int
    max: int | None
    """
    The limit; null without one.
    """
    peak: int | None


class Message(TypedDict):
    content: str
    """
    JSON text: the message of the agent as it came, or of a user `{"type":"user","content":…}`.
    """
    createdAt: str
    id: str
    role: str
    """
    `user` or `assistant`.
    """
    sequence: int
    sessionId: str
    tenantId: str


class MessageList(TypedDict):
    messages: list[Message]


class NewApiKey(TypedDict):
    createdAt: str
    """
    Empty for the key in the settings of the server.
    """
    id: str
    """
    `env` for the key in the settings of the server, else a UUID.
    """
    keyPrefix: str
    """
    A mask: the server stores only a hash of the key.
    """
    label: str
    scope: KeyScope
    key: str
    """
    The key itself.
    """


class NewAttachmentResponse(TypedDict):
    attachment: Attachment
    workspaceError: NotRequired[str]
    """
    Why the attachment could not be copied into the workspace.
    """


class OutputFormat(TypedDict):
    schema: dict[str, Any]
    type: str


PermissionMode: TypeAlias = Literal['bypassPermissions', 'permissionsByAgent', 'default']
"""
Who answers the permission requests of a session, named as in Ash.
"""


class PermissionRequest(TypedDict):
    """
    A request as an object of the API.
    """

    createdAt: str
    expiresAt: str | None
    """
    When the request is denied without an answer.
    """
    id: str
    input: Any
    """
    The input of the tool.
    """
    kind: str
    """
    `network` for a connection to a host, else `tool`.
    """
    suggestions: Any
    """
    Rules that the agent suggests to add, or null.
    """
    tool: str


class PoolStats(TypedDict):
    """
    The sandboxes by state, and how sessions came to theirs, with the names of Ash.
    """

    cold: int
    """
    Always 0: Ash counts records of sandboxes that have exited.
    """
    maxCapacity: int
    preWarmHits: int
    """
    Sessions that began in a warm sandbox.
    """
    resumeColdHits: int
    """
    Sessions that were resumed in a new sandbox.
    """
    resumeWarmHits: int
    """
    Sessions that were resumed in the same sandbox since the start of the server.
    """
    running: int
    """
    Of sessions with a running turn.
    """
    total: int
    """
    Sandboxes of all states, and those that are being started.
    """
    waiting: int
    """
    Of sessions without a running turn.
    """
    warm: int
    """
    Started ahead of a session.
    """
    warming: int
    """
    Being started ahead of a session.
    """


class QuarantinedFile(TypedDict):
    """
    A file that was moved out of the workspace because programs of the host would run it.
    """

    name: str
    """
    The number and the last part of the path.
    """
    number: int
    path: str
    """
    The original path, relative to the workspace.
    """
    replaced: bool
    """
    Whether a copy without the settings that run programs took the place of the file.
    """
    why: str


class QueryOptions(TypedDict):
    """
    Options of each query of a session. The server stores them and passes them to the agent unchanged.
    """

    allowedTools: NotRequired[Any]
    betas: NotRequired[Any]
    disallowedTools: NotRequired[Any]
    initialAgent: NotRequired[Any]
    permissionMode: NotRequired[PermissionMode | None]
    subagents: NotRequired[Any]


class QueueItem(TypedDict):
    """
    An item in a response.
    """

    agentName: str
    completedAt: str | None
    createdAt: str
    error: str | None
    """
    The reason of the last failure.
    """
    id: str
    maxRetries: int
    priority: int
    prompt: str
    retryCount: int
    sessionId: str | None
    startedAt: str | None
    status: str
    """
    `pending`, `processing`, `completed`, `failed` or `cancelled`.
    """
    tenantId: str


class QueueItemList(TypedDict):
    items: list[QueueItem]


class QueueItemResponse(TypedDict):
    item: QueueItem


class QueueStats(TypedDict):
    stats: dict[str, int]
    """
    Numbers of items by status.
    """


ReleaseAction: TypeAlias = Literal['restore', 'remove']


class ReleaseQuarantineRequest(TypedDict):
    action: ReleaseAction
    force: NotRequired[bool]
    """
    Whether a file that is in the way of a restored one is moved to quarantine.
    """
    names: NotRequired[list[str]]
    """
    Numbers, names or original paths; without it, all files are meant.
    """


class SandboxUse(TypedDict):
    """
    Resources that a sandbox uses, and its limits. What the host does not count is null.
    """

    cpu: CpuUse | None
    exceeded: ExceededLimits
    hosts: list[HostTraffic]
    """
    The hosts that programs have connected to since the sandbox started, in the network mode `policy`.
    """
    memory: LimitedUse | None
    pids: LimitedUse | None


class SessionCounts(TypedDict):
    byStatus: dict[str, int]
    total: int


class SessionEvent(TypedDict):
    createdAt: str
    data: str | None
    """
    JSON text.
    """
    id: str
    sequence: int
    sessionId: str
    tenantId: str
    type: str


class SessionEventList(TypedDict):
    events: list[SessionEvent]


class SessionFile(TypedDict):
    content: str
    path: str
    size: int
    """
    In bytes.
    """
    source: str
    """
    `sandbox` if a sandbox is running, else `snapshot`.
    """


class SessionFileList(TypedDict):
    files: list[FileEntry]
    source: str
    """
    `sandbox` if a sandbox is running, else `snapshot`.
    """


class SessionLogEntry(TypedDict):
    index: int
    """
    The position in the log, from 0.
    """
    level: str
    """
    `stderr` for lines of the agent, `system` for messages of saggar.
    """
    text: str
    ts: str


class SessionLogs(TypedDict):
    logs: list[SessionLogEntry]
    source: str
    """
    Always `sandbox`.
    """


class SessionNetwork(TypedDict):
    """
    The network of a session.
    """

    allow: list[str]
    """
    Rules for allowed hosts. There are rules only in the mode `policy`.
    """
    ask: list[str]
    """
    Rules for hosts that need an answer to a permission request.
    """
    consented: list[str]
    """
    Hosts that such an answer has allowed for the session.
    """
    deny: list[str]
    """
    Rules for denied hosts, which take precedence.
    """
    hosts: list[HostTraffic]
    """
    The hosts that programs have connected to since the sandbox started, in the mode `policy`.
    """
    mode: str | None
    """
    `none`, `policy` or `host`; null if no sandbox is running.
    """


SessionStatus: TypeAlias = Literal['starting', 'active', 'paused', 'stopped', 'ended', 'error']
"""
The status of a session, named as in Ash.
"""


class SkippedFile(TypedDict):
    """
    A member of an archive that was not written.
    """

    error: str
    path: str


class Snapshot(TypedDict):
    createdAt: str | None
    id: str
    """
    The value of `fromSnapshot` for sessions that start from it.
    """
    name: str
    sessionId: str
    size: int | None
    """
    In bytes; null if the file has been removed.
    """


class SnapshotList(TypedDict):
    snapshots: list[Snapshot]


class SnapshotResponse(TypedDict):
    snapshot: Snapshot


class StoreCredentialRequest(TypedDict):
    key: str
    """
    The secret.
    """
    label: NotRequired[str | None]
    type: CredentialService


class TenantApiKey(TypedDict):
    id: str
    key: str
    tenantId: str


class Thinking(TypedDict):
    budgetTokens: NotRequired[int | None]
    type: str


class TurnSummary(TypedDict):
    """
    The fields of the `result` message of an agent that clients expect, if they are present.
    """

    numTurns: NotRequired[Any]
    result: NotRequired[Any]


class UpdateAgentRequest(TypedDict):
    config: NotRequired[dict[str, Any]]
    env: NotRequired[dict[str, str]]


class UploadAgentFilesRequest(TypedDict):
    files: list[AgentFileContent]


class UploadAttachmentRequest(TypedDict):
    content: str
    """
    In base64.
    """
    filename: str
    """
    A name without slashes and control characters.
    """
    messageId: NotRequired[str | None]
    mimeType: NotRequired[str | None]
    """
    By default that of the extension of the name.
    """


class UploadWorkspaceRequest(TypedDict):
    bundle: str
    """
    A gzip-compressed tar archive in base64.
    """


class UploadedFile(TypedDict):
    content: str
    """
    In base64; at most 50 MiB of content.
    """
    path: str


class UsageEvent(TypedDict):
    agentName: str
    createdAt: str
    eventType: str
    id: str
    sessionId: str
    tenantId: str
    value: float
    """
    US dollars of `cost_usd`, else an integer.
    """


class UsageEventList(TypedDict):
    events: list[UsageEvent]


class UsageStats(TypedDict):
    totalCacheCreationTokens: int
    totalCacheReadTokens: int
    totalComputeSeconds: int
    """
    Always 0.
    """
    totalCostUsd: float
    totalInputTokens: int
    totalMessages: int
    totalOutputTokens: int
    totalToolCalls: int


class UsageStatsResponse(TypedDict):
    stats: UsageStats


VersionReference: TypeAlias = int | str
"""
The number or the id of a version.
"""


class WorkspaceChange(TypedDict):
    """
    A name that differs between the workspace and its folder.
    """

    after: ChangedEntry | None
    before: ChangedEntry | None
    change: str
    """
    `added`, `modified` or `deleted`.
    """
    conflict: str | None
    """
    How the folder has changed meanwhile.
    """
    leadsOut: str | None
    """
    Why the link leads out of the folder.
    """
    path: str
    pathBytes: NotRequired[str]
    """
    The path in hexadecimal, if it is not UTF-8.
    """
    protected: str | None
    """
    Why the name is protected.
    """
    refused: str | None
    """
    Why the change cannot be applied.
    """


class WriteFilesRequest(TypedDict):
    files: list[UploadedFile]
    targetPath: NotRequired[str | None]
    """
    The directory of the files in the workspace.
    """


class WriteResult(TypedDict):
    error: NotRequired[str]
    """
    The reason why the file was not written.
    """
    path: str
    size: NotRequired[int]
    """
    In bytes, of a file that was written.
    """
    written: bool


class WriteResults(TypedDict):
    files: list[WriteResult]


class WrittenFiles(TypedDict):
    written: int
    """
    The number of files.
    """


class SessionStartData(TypedDict):
    """
    The first event.
    """

    sessionId: str
    """
    The id of the session.
    """
    version: str
    """
    The version of the server.
    """


class SessionStartEvent(TypedDict):
    """
    The first event.
    """

    data: SessionStartData
    event: Literal['session_start']
    id: int
    """
    The position in the stream; several events can have the same.
    """


class MessageEvent(TypedDict):
    """
    A message of the agent, byte for byte. The events that are derived from it precede it.
    """

    data: Any
    event: Literal['message']
    id: int
    """
    The position in the stream; several events can have the same.
    """


class TextDeltaData(TypedDict):
    """
    A part of the answer.
    """

    delta: str
    """
    Follows the parts before it.
    """


class TextDeltaEvent(TypedDict):
    """
    A part of the answer.
    """

    data: TextDeltaData
    event: Literal['text_delta']
    id: int
    """
    The position in the stream; several events can have the same.
    """


class ThinkingDeltaData(TypedDict):
    """
    A part of the reasoning.
    """

    delta: Any
    """
    Text, unless the agent sends another value.
    """


class ThinkingDeltaEvent(TypedDict):
    """
    A part of the reasoning.
    """

    data: ThinkingDeltaData
    event: Literal['thinking_delta']
    id: int
    """
    The position in the stream; several events can have the same.
    """


class ToolUseData(TypedDict):
    """
    A call of a tool.
    """

    id: Any
    """
    The id of the call.
    """
    input: Any
    """
    The input of the tool.
    """
    name: Any
    """
    The name of the tool.
    """


class ToolUseEvent(TypedDict):
    """
    A call of a tool.
    """

    data: ToolUseData
    event: Literal['tool_use']
    id: int
    """
    The position in the stream; several events can have the same.
    """


class ToolResultData(TypedDict):
    """
    The result of a call of a tool.
    """

    content: Any
    """
    The output of the tool, in the form of the agent.
    """
    is_error: bool
    """
    Whether the call failed.
    """
    tool_use_id: Any
    """
    The id of the call.
    """


class ToolResultEvent(TypedDict):
    """
    The result of a call of a tool.
    """

    data: ToolResultData
    event: Literal['tool_result']
    id: int
    """
    The position in the stream; several events can have the same.
    """


class TurnCompleteEvent(TypedDict):
    """
    The end of the turn, as the agent reports it.
    """

    data: TurnSummary
    event: Literal['turn_complete']
    id: int
    """
    The position in the stream; several events can have the same.
    """


class PermissionRequestEvent(TypedDict):
    """
    The agent asks for permission, and waits for an answer.
    """

    data: PermissionRequest
    event: Literal['permission_request']
    id: int
    """
    The position in the stream; several events can have the same.
    """


class PermissionResolvedData(TypedDict):
    """
    A permission request is closed.
    """

    behavior: str
    """
    `allow` or `deny`.
    """
    by: str
    """
    `client` for an answer to the server, else `saggar`.
    """
    id: str
    """
    The id of the request.
    """


class PermissionResolvedEvent(TypedDict):
    """
    A permission request is closed.
    """

    data: PermissionResolvedData
    event: Literal['permission_resolved']
    id: int
    """
    The position in the stream; several events can have the same.
    """


GapData = TypedDict(
    'GapData',
    {
        'from': int,
        'to': int,
    },
)


class GapEvent(TypedDict):
    """
    The events of the bridge with these numbers are no longer stored.
    """

    data: GapData
    event: Literal['gap']
    id: int
    """
    The position in the stream; several events can have the same.
    """


class ErrorData(TypedDict):
    """
    The turn failed.
    """

    error: str
    """
    The reason.
    """


class ErrorEvent(TypedDict):
    """
    The turn failed.
    """

    data: ErrorData
    event: Literal['error']
    id: int
    """
    The position in the stream; several events can have the same.
    """


class DoneData(TypedDict):
    """
    The last event of a turn.
    """

    sessionId: str
    """
    The id of the session.
    """


class DoneEvent(TypedDict):
    """
    The last event of a turn.
    """

    data: DoneData
    event: Literal['done']
    id: int
    """
    The position in the stream; several events can have the same.
    """


Event: TypeAlias = SessionStartEvent | MessageEvent | TextDeltaEvent | ThinkingDeltaEvent | ToolUseEvent | ToolResultEvent | TurnCompleteEvent | PermissionRequestEvent | PermissionResolvedEvent | GapEvent | ErrorEvent | DoneEvent
"""
An event of a stream. Blocks and deltas of the agent with other types are events of that name too: ignore
names that you do not know.
"""


class AgentFileList(TypedDict):
    files: list[FileEntry]


class AgentVersionRequest(TypedDict):
    """
    Body of `POST` and `PATCH`. Of a version that is updated, absent fields are retained, and null clears a field.
    """

    cloneFrom: NotRequired[VersionReference | None]
    knowledgeFiles: NotRequired[list[str] | None]
    name: NotRequired[str | None]
    """
    By default `v` and the number of the version.
    """
    releaseNotes: NotRequired[str | None]
    systemPrompt: NotRequired[str | None]


class Analytics(TypedDict):
    agents: AgentCount
    evals: EvaluationCounts
    sessions: SessionCounts
    usage: UsageStats


class AnswerPermissionRequest(TypedDict):
    """
    An answer. The fields besides `behavior` reach the agent unchanged.
    """

    behavior: Behavior


class ApiKey(TypedDict):
    """
    A key in a list.
    """

    createdAt: str
    """
    Empty for the key in the settings of the server.
    """
    id: str
    """
    `env` for the key in the settings of the server, else a UUID.
    """
    keyPrefix: str
    """
    A mask: the server stores only a hash of the key.
    """
    label: str
    scope: KeyScope


class ApiKeyList(TypedDict):
    keys: list[ApiKey]


class ChangeList(TypedDict):
    files: list[WorkspaceChange]


class CreateApiKeyRequest(TypedDict):
    label: NotRequired[str | None]
    scope: NotRequired[KeyScope]


class CreateSessionRequest(QueryOptions):
    agent: str
    """
    The name of the agent.
    """
    credentialId: NotRequired[str | None]
    extraEnv: NotRequired[dict[str, str]]
    fromSnapshot: NotRequired[str | None]
    mcpServers: NotRequired[dict[str, Any]]
    model: NotRequired[str | None]
    systemPrompt: NotRequired[str | None]


class Credential(TypedDict):
    """
    A credential in a response.
    """

    active: bool
    createdAt: str
    id: str
    label: str
    lastUsedAt: str | None
    type: CredentialService


class CredentialList(TypedDict):
    credentials: list[Credential]


class CredentialResponse(TypedDict):
    credential: Credential


class Health(TypedDict):
    activeSandboxes: int
    activeSessions: int
    coordinatorId: str
    """
    The host and the pid of the server.
    """
    pool: PoolStats
    remoteRunners: int
    """
    Always 0.
    """
    status: str
    """
    Always `ok`.
    """
    uptime: int
    """
    In seconds.
    """
    version: str


class PermissionList(TypedDict):
    permissions: list[PermissionRequest]


class QuarantineList(TypedDict):
    files: list[QuarantinedFile]


class RestoredWorkspace(TypedDict):
    message: str
    skipped: list[SkippedFile]
    written: int
    """
    The number of files.
    """


class SendMessageRequest(TypedDict):
    content: Any
    """
    A text of at most 500000 characters, or a list of 1 to 20 content blocks with a `type`.
    """
    effort: NotRequired[Effort | None]
    includePartialMessages: NotRequired[bool | None]
    """
    Whether the stream has parts of the answer as `text_delta`.
    """
    maxBudgetUsd: NotRequired[float | None]
    maxTurns: NotRequired[int | None]
    model: NotRequired[str | None]
    outputFormat: NotRequired[OutputFormat | None]
    thinking: NotRequired[Thinking | None]


class Session(TypedDict):
    agentName: str
    config: dict[str, Any]
    createdAt: str
    id: str
    lastActiveAt: str
    model: str | None
    parentSessionId: str | None
    runnerId: str | None
    sandboxId: str
    status: SessionStatus
    tenantId: str


class SessionList(TypedDict):
    sessions: list[Session]
    total: int
    """
    The number of sessions without `limit` and `offset`.
    """


class SessionResponse(TypedDict):
    session: Session


class SessionUsage(TypedDict):
    sandbox: SandboxUse | None
    stats: UsageStats
    """
    The sums of its usage events.
    """


class SessionUsageResponse(TypedDict):
    usage: SessionUsage
