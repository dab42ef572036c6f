-- Runs on SQLite and PostgreSQL, as 0001.

-- admin, agent or read. Keys of earlier versions could do everything.
ALTER TABLE api_keys ADD COLUMN scope TEXT NOT NULL DEFAULT 'admin';

CREATE TABLE credentials (
    id TEXT PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    type TEXT NOT NULL,
    -- AES-256-GCM, in base64. The key is derived from the key of the server and from salt.
    encrypted_key TEXT NOT NULL,
    iv TEXT NOT NULL,
    auth_tag TEXT NOT NULL,
    salt TEXT NOT NULL,
    label TEXT NOT NULL,
    active BIGINT NOT NULL,
    created_at TEXT NOT NULL,
    last_used_at TEXT
);
CREATE INDEX credentials_of_tenant ON credentials (tenant_id, created_at);

-- The total cost that the agent process of the sandbox has reported, in millionths of a US dollar.
ALTER TABLE sessions ADD COLUMN reported_cost BIGINT NOT NULL DEFAULT 0;

-- No reference to sessions: usage remains after a session has been deleted.
CREATE TABLE usage_events (
    id TEXT PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    agent_name TEXT NOT NULL,
    event_type TEXT NOT NULL,
    -- A number of tokens, calls or messages; for cost_usd, millionths of a US dollar.
    value BIGINT NOT NULL,
    created_at TEXT NOT NULL
);
CREATE INDEX usage_events_by_time ON usage_events (tenant_id, created_at);
CREATE INDEX usage_events_of_session ON usage_events (session_id);

CREATE TABLE agent_versions (
    id TEXT PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    agent_name TEXT NOT NULL,
    version_number BIGINT NOT NULL,
    name TEXT NOT NULL,
    system_prompt TEXT,
    release_notes TEXT,
    is_active BIGINT NOT NULL,
    -- A JSON list of strings.
    knowledge_files TEXT,
    created_by TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    UNIQUE (tenant_id, agent_name, version_number)
);
