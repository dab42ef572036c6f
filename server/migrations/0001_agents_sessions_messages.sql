-- Runs on SQLite and PostgreSQL, so the only types are TEXT and BIGINT. Timestamps are ISO 8601 text in UTC with
-- milliseconds; JSON is text.

CREATE TABLE api_keys (
    id TEXT PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    -- SHA-256 in hexadecimal digits. Keys have 192 random bits, so the hash needs no salt.
    key_hash TEXT NOT NULL UNIQUE,
    label TEXT NOT NULL,
    created_at TEXT NOT NULL
);

CREATE TABLE agents (
    id TEXT PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    name TEXT NOT NULL,
    version BIGINT NOT NULL,
    path TEXT NOT NULL,
    env TEXT NOT NULL,
    config TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    UNIQUE (tenant_id, name)
);

CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    agent_name TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    status TEXT NOT NULL,
    parent_session_id TEXT,
    model TEXT,
    config TEXT NOT NULL,
    -- The number of the last recorded bridge event. It is updated in the transaction that inserts the rows of the event.
    recorded BIGINT NOT NULL,
    created_at TEXT NOT NULL,
    last_active_at TEXT NOT NULL
);
CREATE INDEX sessions_of_agent ON sessions (tenant_id, agent_name);
CREATE INDEX sessions_by_time ON sessions (tenant_id, created_at);

CREATE TABLE messages (
    id TEXT PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    role TEXT NOT NULL,
    content TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    created_at TEXT NOT NULL,
    UNIQUE (session_id, sequence)
);

CREATE TABLE session_events (
    id TEXT PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    type TEXT NOT NULL,
    data TEXT,
    sequence BIGINT NOT NULL,
    created_at TEXT NOT NULL,
    UNIQUE (session_id, sequence)
);
