// Generated from server/openapi.json by scripts/generate.ts (npm run generate). Do not edit.

import { Http } from "../http.js";
import type { CallOptions, ClientOptions } from "../options.js";
import { filePath, segment } from "../path.js";
import { streamSession, streamTurn } from "../streams.js";
import type { EventStream } from "../streams.js";
import type * as Api from "./types.js";
import type { operations } from "./types.js";

/** The query of an operation. */
type Query<Id extends keyof operations> = NonNullable<operations[Id]["parameters"]["query"]>;

/** A client of a server. */
export class Client {
  readonly #http: Http;

  constructor(options: ClientOptions) {
    this.#http = new Http(options);
  }

  /** Lists the agents by name. */
  async listAgents(options: CallOptions = {}): Promise<Api.AgentList> {
    return this.#http.json<Api.AgentList>({ method: "GET", path: "/api/agents", security: "key" }, options);
  }

  /** Deploys an agent, or the next version of it. */
  async deployAgent(body: Api.DeployAgentRequest, options: CallOptions = {}): Promise<Api.AgentResponse> {
    return this.#http.json<Api.AgentResponse>({ method: "POST", path: "/api/agents", security: "key", body }, options);
  }

  /** Returns an agent. */
  async getAgent(name: string, options: CallOptions = {}): Promise<Api.AgentResponse> {
    return this.#http.json<Api.AgentResponse>({ method: "GET", path: `/api/agents/${segment("name", name)}`, security: "key" }, options);
  }

  /** Deletes an agent with its sessions, their sandboxes and their files. */
  async deleteAgent(name: string, options: CallOptions = {}): Promise<Api.Confirmation> {
    return this.#http.json<Api.Confirmation>({ method: "DELETE", path: `/api/agents/${segment("name", name)}`, security: "key" }, options);
  }

  /**
   * Updates an agent.
   *
   * Replaces `env` as a whole, and merges the top-level keys of `config`.
   */
  async updateAgent(name: string, body: Api.UpdateAgentRequest, options: CallOptions = {}): Promise<Api.AgentResponse> {
    return this.#http.json<Api.AgentResponse>({ method: "PATCH", path: `/api/agents/${segment("name", name)}`, security: "key", body }, options);
  }

  /** Returns the configuration of an agent. */
  async getAgentConfig(name: string, options: CallOptions = {}): Promise<Api.AgentConfig> {
    return this.#http.json<Api.AgentConfig>({ method: "GET", path: `/api/agents/${segment("name", name)}/config`, security: "key" }, options);
  }

  /** Sets each top-level key of the body in the configuration of an agent. */
  async updateAgentConfig(name: string, body: operations["updateAgentConfig"]["requestBody"]["content"]["application/json"], options: CallOptions = {}): Promise<Api.AgentConfig> {
    return this.#http.json<Api.AgentConfig>({ method: "PATCH", path: `/api/agents/${segment("name", name)}/config`, security: "key", body }, options);
  }

  /** Lists the files of an agent. */
  async listAgentFiles(name: string, options: CallOptions = {}): Promise<Api.AgentFileList> {
    return this.#http.json<Api.AgentFileList>({ method: "GET", path: `/api/agents/${segment("name", name)}/files`, security: "key" }, options);
  }

  /** Creates or replaces files of an agent. */
  async uploadAgentFiles(name: string, body: Api.UploadAgentFilesRequest, options: CallOptions = {}): Promise<Api.WrittenFiles> {
    return this.#http.json<Api.WrittenFiles>({ method: "POST", path: `/api/agents/${segment("name", name)}/files`, security: "key", body }, options);
  }

  /** Returns a file of an agent. */
  getAgentFile(name: string, path: string, options: CallOptions & Query<"getAgentFile"> & { format: "raw" }): Promise<Uint8Array>;
  getAgentFile(name: string, path: string, options?: CallOptions & Query<"getAgentFile">): Promise<Api.AgentFile>;
  async getAgentFile(name: string, path: string, options: CallOptions & Query<"getAgentFile"> = {}): Promise<Uint8Array | Api.AgentFile> {
    const request = { method: "GET", path: `/api/agents/${segment("name", name)}/files/${filePath("path", path)}`, security: "key", query: { "format": options.format } } as const;
    return options.format === "raw" ? this.#http.bytes(request, options) : this.#http.json<Api.AgentFile>(request, options);
  }

  /** Deletes a file of an agent. */
  async deleteAgentFile(name: string, path: string, options: CallOptions = {}): Promise<Api.DeletedFile> {
    return this.#http.json<Api.DeletedFile>({ method: "DELETE", path: `/api/agents/${segment("name", name)}/files/${filePath("path", path)}`, security: "key" }, options);
  }

  /** Lists the versions of an agent, the newest first. */
  async listAgentVersions(name: string, options: CallOptions = {}): Promise<Api.AgentVersionList> {
    return this.#http.json<Api.AgentVersionList>({ method: "GET", path: `/api/agents/${segment("name", name)}/versions`, security: "key" }, options);
  }

  /** Creates a version of an agent. */
  async createAgentVersion(name: string, body: Api.AgentVersionRequest, options: CallOptions = {}): Promise<Api.AgentVersionResponse> {
    return this.#http.json<Api.AgentVersionResponse>({ method: "POST", path: `/api/agents/${segment("name", name)}/versions`, security: "key", body }, options);
  }

  /** Returns a version of an agent. */
  async getAgentVersion(name: string, version: string, options: CallOptions = {}): Promise<Api.AgentVersionResponse> {
    return this.#http.json<Api.AgentVersionResponse>({ method: "GET", path: `/api/agents/${segment("name", name)}/versions/${segment("version", version)}`, security: "key" }, options);
  }

  /**
   * Deletes a version of an agent.
   *
   * Without an active version, new sessions use the prompt of the folder.
   */
  async deleteAgentVersion(name: string, version: string, options: CallOptions = {}): Promise<Api.Confirmation> {
    return this.#http.json<Api.Confirmation>({ method: "DELETE", path: `/api/agents/${segment("name", name)}/versions/${segment("version", version)}`, security: "key" }, options);
  }

  /** Updates a version of an agent. */
  async updateAgentVersion(name: string, version: string, body: Api.AgentVersionRequest, options: CallOptions = {}): Promise<Api.AgentVersionResponse> {
    return this.#http.json<Api.AgentVersionResponse>({ method: "PATCH", path: `/api/agents/${segment("name", name)}/versions/${segment("version", version)}`, security: "key", body }, options);
  }

  /**
   * Makes a version the active one of its agent.
   *
   * Its system prompt replaces that of the folder in new sessions.
   */
  async activateAgentVersion(name: string, version: string, options: CallOptions = {}): Promise<Api.ActivatedVersion> {
    return this.#http.json<Api.ActivatedVersion>({ method: "POST", path: `/api/agents/${segment("name", name)}/versions/${segment("version", version)}/activate`, security: "key" }, options);
  }

  /** Returns the number of agents, the sessions that were created in a period, and its usage. */
  async getAnalytics(options: CallOptions & Query<"getAnalytics"> = {}): Promise<Api.Analytics> {
    return this.#http.json<Api.Analytics>({ method: "GET", path: "/api/analytics", security: "key", query: { "after": options.after, "before": options.before } }, options);
  }

  /** Lists the API keys of the tenant. */
  async listApiKeys(options: CallOptions = {}): Promise<Api.ApiKeyList> {
    return this.#http.json<Api.ApiKeyList>({ method: "GET", path: "/api/api-keys", security: "key" }, options);
  }

  /**
   * Creates an API key of the same tenant.
   *
   * Only this response contains it.
   */
  async createApiKey(body: Api.CreateApiKeyRequest, options: CallOptions = {}): Promise<Api.NewApiKey> {
    return this.#http.json<Api.NewApiKey>({ method: "POST", path: "/api/api-keys", security: "key", body }, options);
  }

  /**
   * Deletes an API key.
   *
   * From then on, requests with this key are rejected.
   */
  async deleteApiKey(id: string, options: CallOptions = {}): Promise<Api.Confirmation> {
    return this.#http.json<Api.Confirmation>({ method: "DELETE", path: `/api/api-keys/${segment("id", id)}`, security: "key" }, options);
  }

  /** Returns the bytes of an attachment. */
  async downloadAttachment(id: string, options: CallOptions = {}): Promise<Uint8Array> {
    return this.#http.bytes({ method: "GET", path: `/api/attachments/${segment("id", id)}`, security: "key" }, options);
  }

  /**
   * Deletes an attachment.
   *
   * The copy in the workspace remains.
   */
  async deleteAttachment(id: string, options: CallOptions = {}): Promise<Api.Confirmation> {
    return this.#http.json<Api.Confirmation>({ method: "DELETE", path: `/api/attachments/${segment("id", id)}`, security: "key" }, options);
  }

  /** Lists the credentials, without their secrets. */
  async listCredentials(options: CallOptions = {}): Promise<Api.CredentialList> {
    return this.#http.json<Api.CredentialList>({ method: "GET", path: "/api/credentials", security: "key" }, options);
  }

  /** Stores a credential, encrypted. */
  async storeCredential(body: Api.StoreCredentialRequest, options: CallOptions = {}): Promise<Api.CredentialResponse> {
    return this.#http.json<Api.CredentialResponse>({ method: "POST", path: "/api/credentials", security: "key", body }, options);
  }

  /**
   * Deletes a credential.
   *
   * Sandboxes that have started with the credential retain its variables.
   */
  async deleteCredential(id: string, options: CallOptions = {}): Promise<Api.Confirmation> {
    return this.#http.json<Api.Confirmation>({ method: "DELETE", path: `/api/credentials/${segment("id", id)}`, security: "key" }, options);
  }

  /**
   * Creates an API key of any tenant.
   *
   * A tenant exists as soon as it has a key.
   */
  async createTenantApiKey(body: Api.CreateTenantApiKeyRequest, options: CallOptions = {}): Promise<Api.TenantApiKey> {
    return this.#http.json<Api.TenantApiKey>({ method: "POST", path: "/api/internal/api-keys", security: "internalSecret", body }, options);
  }

  /** Lists the items of the queue, the newest first. */
  async listQueueItems(options: CallOptions & Query<"listQueueItems"> = {}): Promise<Api.QueueItemList> {
    return this.#http.json<Api.QueueItemList>({ method: "GET", path: "/api/queue", security: "key", query: { "status": options.status, "limit": options.limit } }, options);
  }

  /**
   * Adds a message to the queue.
   *
   * The agent need not exist yet.
   */
  async enqueue(body: Api.EnqueueRequest, options: CallOptions = {}): Promise<Api.QueueItemResponse> {
    return this.#http.json<Api.QueueItemResponse>({ method: "POST", path: "/api/queue", security: "key", body }, options);
  }

  /** Returns the number of items with each status. */
  async getQueueStats(options: CallOptions = {}): Promise<Api.QueueStats> {
    return this.#http.json<Api.QueueStats>({ method: "GET", path: "/api/queue/stats", security: "key" }, options);
  }

  /** Returns an item of the queue. */
  async getQueueItem(id: string, options: CallOptions = {}): Promise<Api.QueueItemResponse> {
    return this.#http.json<Api.QueueItemResponse>({ method: "GET", path: `/api/queue/${segment("id", id)}`, security: "key" }, options);
  }

  /** Cancels a pending item of the queue. */
  async cancelQueueItem(id: string, options: CallOptions = {}): Promise<Api.QueueItemResponse> {
    return this.#http.json<Api.QueueItemResponse>({ method: "DELETE", path: `/api/queue/${segment("id", id)}`, security: "key" }, options);
  }

  /** Lists the sessions, the newest first. */
  async listSessions(options: CallOptions & Query<"listSessions"> = {}): Promise<Api.SessionList> {
    return this.#http.json<Api.SessionList>({ method: "GET", path: "/api/sessions", security: "key", query: { "agent": options.agent, "status": options.status, "limit": options.limit, "offset": options.offset } }, options);
  }

  /** Starts an agent in a sandbox. */
  async createSession(body: Api.CreateSessionRequest, options: CallOptions = {}): Promise<Api.SessionResponse> {
    return this.#http.json<Api.SessionResponse>({ method: "POST", path: "/api/sessions", security: "key", body }, options);
  }

  /** Returns a session. */
  async getSession(id: string, options: CallOptions = {}): Promise<Api.SessionResponse> {
    return this.#http.json<Api.SessionResponse>({ method: "GET", path: `/api/sessions/${segment("id", id)}`, security: "key" }, options);
  }

  /**
   * Ends a session permanently.
   *
   * Its messages and its workspace are retained.
   */
  async endSession(id: string, options: CallOptions = {}): Promise<Api.SessionResponse> {
    return this.#http.json<Api.SessionResponse>({ method: "DELETE", path: `/api/sessions/${segment("id", id)}`, security: "key" }, options);
  }

  /** Applies changes of the workspace to the folder of the session. */
  async applyChanges(id: string, body: Api.ChangePaths, options: CallOptions = {}): Promise<Api.Confirmation> {
    return this.#http.json<Api.Confirmation>({ method: "POST", path: `/api/sessions/${segment("id", id)}/apply`, security: "key", body }, options);
  }

  /** Lists the attachments of a session, the oldest first. */
  async listAttachments(id: string, options: CallOptions = {}): Promise<Api.AttachmentList> {
    return this.#http.json<Api.AttachmentList>({ method: "GET", path: `/api/sessions/${segment("id", id)}/attachments`, security: "key" }, options);
  }

  /** Adds a file to a session, and copies it into the workspace. */
  async uploadAttachment(id: string, body: Api.UploadAttachmentRequest, options: CallOptions = {}): Promise<Api.NewAttachmentResponse> {
    return this.#http.json<Api.NewAttachmentResponse>({ method: "POST", path: `/api/sessions/${segment("id", id)}/attachments`, security: "key", body }, options);
  }

  /**
   * Changes options of the queries of a session.
   *
   * The options are `model`, `allowedTools`, `disallowedTools`, `betas`, `subagents` and `initialAgent`. Null removes
   * one.
   */
  async updateSessionConfig(id: string, body: operations["updateSessionConfig"]["requestBody"]["content"]["application/json"], options: CallOptions = {}): Promise<Api.SessionResponse> {
    return this.#http.json<Api.SessionResponse>({ method: "PATCH", path: `/api/sessions/${segment("id", id)}/config`, security: "key", body }, options);
  }

  /**
   * Lists the changes of the workspace.
   *
   * They are compared with the folder that the session started from.
   */
  getSessionDiff(id: string, options: CallOptions & Query<"getSessionDiff"> & { format: "patch" }): Promise<string>;
  getSessionDiff(id: string, options?: CallOptions & Query<"getSessionDiff">): Promise<Api.ChangeList>;
  async getSessionDiff(id: string, options: CallOptions & Query<"getSessionDiff"> = {}): Promise<string | Api.ChangeList> {
    const request = { method: "GET", path: `/api/sessions/${segment("id", id)}/diff`, security: "key", query: { "format": options.format } } as const;
    return options.format === "patch" ? this.#http.text(request, options) : this.#http.json<Api.ChangeList>(request, options);
  }

  /** Removes changes from the workspace. */
  async discardChanges(id: string, body: Api.ChangePaths, options: CallOptions = {}): Promise<Api.Confirmation> {
    return this.#http.json<Api.Confirmation>({ method: "POST", path: `/api/sessions/${segment("id", id)}/discard`, security: "key", body }, options);
  }

  /** Lists the stored events of a session. */
  async listSessionEvents(id: string, options: CallOptions & Query<"listSessionEvents"> = {}): Promise<Api.SessionEventList> {
    return this.#http.json<Api.SessionEventList>({ method: "GET", path: `/api/sessions/${segment("id", id)}/events`, security: "key", query: { "limit": options.limit, "after": options.after, "type": options.type } }, options);
  }

  /** Runs a shell command in the sandbox, concurrently with the agent. */
  async exec(id: string, body: Api.ExecRequest, options: CallOptions = {}): Promise<Api.ExecResponse> {
    return this.#http.json<Api.ExecResponse>({ method: "POST", path: `/api/sessions/${segment("id", id)}/exec`, security: "key", body }, options);
  }

  /** Lists the files of the workspace of a session. */
  async getSessionFiles(id: string, options: CallOptions & Query<"getSessionFiles"> = {}): Promise<Api.SessionFileList> {
    return this.#http.json<Api.SessionFileList>({ method: "GET", path: `/api/sessions/${segment("id", id)}/files`, security: "key", query: { "includeHidden": options.includeHidden } }, options);
  }

  /** Writes files into the workspace, each with a result of its own. */
  async writeSessionFiles(id: string, body: Api.WriteFilesRequest, options: CallOptions = {}): Promise<Api.WriteResults> {
    return this.#http.json<Api.WriteResults>({ method: "POST", path: `/api/sessions/${segment("id", id)}/files`, security: "key", body }, options);
  }

  /** Returns a file of the workspace. */
  getSessionFile(id: string, path: string, options: CallOptions & Query<"getSessionFile"> & { format: "json" }): Promise<Api.SessionFile>;
  getSessionFile(id: string, path: string, options?: CallOptions & Query<"getSessionFile">): Promise<Uint8Array>;
  async getSessionFile(id: string, path: string, options: CallOptions & Query<"getSessionFile"> = {}): Promise<Api.SessionFile | Uint8Array> {
    const request = { method: "GET", path: `/api/sessions/${segment("id", id)}/files/${filePath("path", path)}`, security: "key", query: { "format": options.format } } as const;
    return options.format === "json" ? this.#http.json<Api.SessionFile>(request, options) : this.#http.bytes(request, options);
  }

  /** Deletes a file of the workspace. */
  async deleteSessionFile(id: string, path: string, options: CallOptions = {}): Promise<Api.DeletedSessionFile> {
    return this.#http.json<Api.DeletedSessionFile>({ method: "DELETE", path: `/api/sessions/${segment("id", id)}/files/${filePath("path", path)}`, security: "key" }, options);
  }

  /**
   * Creates a session from another one.
   *
   * The new session is paused, and has the messages, the workspace and the conversation of the other.
   */
  async forkSession(id: string, options: CallOptions = {}): Promise<Api.SessionResponse> {
    return this.#http.json<Api.SessionResponse>({ method: "POST", path: `/api/sessions/${segment("id", id)}/fork`, security: "key" }, options);
  }

  /**
   * Aborts the current turn of a session.
   *
   * It is not an error if no turn is running.
   */
  async interruptSession(id: string, options: CallOptions = {}): Promise<Api.Confirmation> {
    return this.#http.json<Api.Confirmation>({ method: "POST", path: `/api/sessions/${segment("id", id)}/interrupt`, security: "key" }, options);
  }

  /**
   * Lists the log of a running session.
   *
   * It has the standard error of the agent, and warnings of saggar.
   */
  async getSessionLogs(id: string, options: CallOptions & Query<"getSessionLogs"> = {}): Promise<Api.SessionLogs> {
    return this.#http.json<Api.SessionLogs>({ method: "GET", path: `/api/sessions/${segment("id", id)}/logs`, security: "key", query: { "after": options.after } }, options);
  }

  /** Lists the messages of a session. */
  async listMessages(id: string, options: CallOptions & Query<"listMessages"> = {}): Promise<Api.MessageList> {
    return this.#http.json<Api.MessageList>({ method: "GET", path: `/api/sessions/${segment("id", id)}/messages`, security: "key", query: { "limit": options.limit, "after": options.after } }, options);
  }

  /**
   * Sends a message and streams its turn.
   *
   * If the client disconnects, the turn continues. A repetition with the same `Idempotency-Key` receives the stream of
   * the same turn.
   */
  sendMessage(id: string, body: Api.SendMessageRequest, options: CallOptions & { /** Names the message, so that it can be repeated without being sent twice */ idempotencyKey?: string } = {}): EventStream {
    return streamTurn(this.#http, { method: "POST", path: `/api/sessions/${segment("id", id)}/messages`, security: "key", headers: { "idempotency-key": options.idempotencyKey }, body }, options);
  }

  /** Returns the network of a session. */
  async getSessionNetwork(id: string, options: CallOptions = {}): Promise<Api.SessionNetwork> {
    return this.#http.json<Api.SessionNetwork>({ method: "GET", path: `/api/sessions/${segment("id", id)}/network`, security: "key" }, options);
  }

  /**
   * Allows a session to connect to more hosts.
   *
   * The rules are added to those in effect, for the running sandbox and for each later one of the session.
   */
  async allowHosts(id: string, body: Api.AllowHostsRequest, options: CallOptions = {}): Promise<Api.Confirmation> {
    return this.#http.json<Api.Confirmation>({ method: "POST", path: `/api/sessions/${segment("id", id)}/network`, security: "key", body }, options);
  }

  /**
   * Freezes the processes of a session.
   *
   * If saggar cannot freeze them, the sandbox is shut down, and resume starts a new one with the same workspace and
   * conversation.
   */
  async pauseSession(id: string, options: CallOptions = {}): Promise<Api.SessionResponse> {
    return this.#http.json<Api.SessionResponse>({ method: "POST", path: `/api/sessions/${segment("id", id)}/pause`, security: "key" }, options);
  }

  /** Lists the open permission requests of a session. */
  async listPermissions(id: string, options: CallOptions = {}): Promise<Api.PermissionList> {
    return this.#http.json<Api.PermissionList>({ method: "GET", path: `/api/sessions/${segment("id", id)}/permissions`, security: "key" }, options);
  }

  /**
   * Answers a permission request.
   *
   * The first answer counts.
   */
  async answerPermission(id: string, permission: string, body: Api.AnswerPermissionRequest, options: CallOptions = {}): Promise<Api.Confirmation> {
    return this.#http.json<Api.Confirmation>({ method: "POST", path: `/api/sessions/${segment("id", id)}/permissions/${segment("permission", permission)}`, security: "key", body }, options);
  }

  /** Lists the files in quarantine. */
  async listQuarantine(id: string, options: CallOptions = {}): Promise<Api.QuarantineList> {
    return this.#http.json<Api.QuarantineList>({ method: "GET", path: `/api/sessions/${segment("id", id)}/quarantine`, security: "key" }, options);
  }

  /**
   * Restores files from quarantine, or removes them.
   *
   * A restored file is one that programs of the host would run: this needs the scope `admin`, and no running sandbox.
   */
  async releaseQuarantine(id: string, body: Api.ReleaseQuarantineRequest, options: CallOptions = {}): Promise<Api.Confirmation> {
    return this.#http.json<Api.Confirmation>({ method: "POST", path: `/api/sessions/${segment("id", id)}/quarantine`, security: "key", body }, options);
  }

  /** Thaws a session, or starts it in a new sandbox. */
  async resumeSession(id: string, options: CallOptions = {}): Promise<Api.SessionResponse> {
    return this.#http.json<Api.SessionResponse>({ method: "POST", path: `/api/sessions/${segment("id", id)}/resume`, security: "key" }, options);
  }

  /** Lists the snapshots of a session. */
  async listSnapshots(id: string, options: CallOptions = {}): Promise<Api.SnapshotList> {
    return this.#http.json<Api.SnapshotList>({ method: "GET", path: `/api/sessions/${segment("id", id)}/snapshots`, security: "key" }, options);
  }

  /** Takes a snapshot of a session. */
  async createSnapshot(id: string, options: CallOptions = {}): Promise<Api.SnapshotResponse> {
    return this.#http.json<Api.SnapshotResponse>({ method: "POST", path: `/api/sessions/${segment("id", id)}/snapshots`, security: "key" }, options);
  }

  /** Deletes a snapshot. */
  async deleteSnapshot(id: string, name: string, options: CallOptions = {}): Promise<Api.Confirmation> {
    return this.#http.json<Api.Confirmation>({ method: "DELETE", path: `/api/sessions/${segment("id", id)}/snapshots/${segment("name", name)}`, security: "key" }, options);
  }

  /**
   * Shuts the sandbox of a session down.
   *
   * The session can be resumed.
   */
  async stopSession(id: string, options: CallOptions = {}): Promise<Api.SessionResponse> {
    return this.#http.json<Api.SessionResponse>({ method: "POST", path: `/api/sessions/${segment("id", id)}/stop`, security: "key" }, options);
  }

  /**
   * Streams the events of all turns of a session.
   *
   * They begin after the event with the id in `Last-Event-ID` or `after`. Without a sandbox, the stream ends after the
   * last stored event.
   */
  streamSession(id: string, options: CallOptions & Query<"streamSession"> & { /** Takes precedence over `after` */ lastEventId?: number } = {}): EventStream {
    return streamSession(this.#http, { method: "GET", path: `/api/sessions/${segment("id", id)}/stream`, security: "key", query: { "after": options.after }, headers: { "last-event-id": options.lastEventId } }, options);
  }

  /** Returns the usage of a session, with the resources that its sandbox uses and their limits. */
  async getSessionUsage(id: string, options: CallOptions = {}): Promise<Api.SessionUsageResponse> {
    return this.#http.json<Api.SessionUsageResponse>({ method: "GET", path: `/api/sessions/${segment("id", id)}/usage`, security: "key" }, options);
  }

  /**
   * Returns the files of the workspace as an archive.
   *
   * Files that are not listed, files of variables (`.env`), and files of more than 100 MiB are left out.
   */
  async downloadWorkspace(id: string, options: CallOptions = {}): Promise<Uint8Array> {
    return this.#http.bytes({ method: "GET", path: `/api/sessions/${segment("id", id)}/workspace`, security: "key" }, options);
  }

  /**
   * Writes the files of an archive into the workspace.
   *
   * Other files stay.
   */
  async uploadWorkspace(id: string, body: Api.UploadWorkspaceRequest, options: CallOptions = {}): Promise<Api.RestoredWorkspace> {
    return this.#http.json<Api.RestoredWorkspace>({ method: "POST", path: `/api/sessions/${segment("id", id)}/workspace`, security: "key", body }, options);
  }

  /** Lists usage events, the newest first. */
  async listUsageEvents(options: CallOptions & Query<"listUsageEvents"> = {}): Promise<Api.UsageEventList> {
    return this.#http.json<Api.UsageEventList>({ method: "GET", path: "/api/usage", security: "key", query: { "sessionId": options.sessionId, "agentName": options.agentName, "after": options.after, "before": options.before, "limit": options.limit } }, options);
  }

  /** Returns the sums of usage events. */
  async getUsageStats(options: CallOptions & Query<"getUsageStats"> = {}): Promise<Api.UsageStatsResponse> {
    return this.#http.json<Api.UsageStatsResponse>({ method: "GET", path: "/api/usage/stats", security: "key", query: { "sessionId": options.sessionId, "agentName": options.agentName, "after": options.after, "before": options.before } }, options);
  }

  /** Returns this document as a page for people. */
  async getDocumentPage(options: CallOptions = {}): Promise<string> {
    return this.#http.text({ method: "GET", path: "/docs", security: "none" }, options);
  }

  /** Returns this document. */
  async getDocumentOfAsh(options: CallOptions = {}): Promise<operations["getDocumentOfAsh"]["responses"][200]["content"]["application/json"]> {
    return this.#http.json<operations["getDocumentOfAsh"]["responses"][200]["content"]["application/json"]>({ method: "GET", path: "/docs/json", security: "none" }, options);
  }

  /**
   * Reports that the server works, with its database.
   *
   * It requires no key and shows no data of a tenant.
   */
  async health(options: CallOptions = {}): Promise<Api.Health> {
    return this.#http.json<Api.Health>({ method: "GET", path: "/health", security: "none" }, options);
  }

  /**
   * Reports that the process answers requests, even if the database does not.
   *
   * For a supervisor that restarts a server that hangs: a restart does not help while the database is away.
   */
  async live(options: CallOptions = {}): Promise<Api.Confirmation> {
    return this.#http.json<Api.Confirmation>({ method: "GET", path: "/live", security: "none" }, options);
  }

  /**
   * Returns numbers of the server for Prometheus.
   *
   * They contain no data of a tenant.
   */
  async getMetrics(options: CallOptions = {}): Promise<string> {
    return this.#http.text({ method: "GET", path: "/metrics", security: "key" }, options);
  }

  /** Returns this document. */
  async getDocument(options: CallOptions = {}): Promise<operations["getDocument"]["responses"][200]["content"]["application/json"]> {
    return this.#http.json<operations["getDocument"]["responses"][200]["content"]["application/json"]>({ method: "GET", path: "/openapi.json", security: "none" }, options);
  }
}
