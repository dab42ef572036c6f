CREATE TABLE attachments (
    -- Also the name of its file.
    id TEXT PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    message_id TEXT,
    filename TEXT NOT NULL,
    mime_type TEXT NOT NULL,
    size BIGINT NOT NULL,
    created_at TEXT NOT NULL
);
CREATE INDEX attachments_of_session ON attachments (session_id);

CREATE TABLE queue_items (
    id TEXT PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    -- Not a reference: the id of a new session is stored before the session is created, and items outlive sessions.
    session_id TEXT,
    -- 1 if the item named no session: the queue creates one.
    makes_session BIGINT NOT NULL,
    agent_name TEXT NOT NULL,
    prompt TEXT NOT NULL,
    status TEXT NOT NULL,
    priority BIGINT NOT NULL,
    -- The order of insertion. Items that are inserted at the same time can have the same number.
    sequence BIGINT NOT NULL,
    retry_count BIGINT NOT NULL,
    max_retries BIGINT NOT NULL,
    error TEXT,
    retry_after TEXT,
    -- The command id of the turn, stored before the command is sent, and the number of the last event before it.
    turn_id TEXT,
    events_before BIGINT,
    created_at TEXT NOT NULL,
    started_at TEXT,
    completed_at TEXT
);
CREATE INDEX queue_items_by_status ON queue_items (status, priority, sequence);
CREATE INDEX queue_items_by_sequence ON queue_items (sequence);
CREATE INDEX queue_items_of_tenant ON queue_items (tenant_id, sequence);
-- A session runs one item at a time, however many workers claim items.
CREATE UNIQUE INDEX queue_items_processing ON queue_items (session_id) WHERE status = 'processing';
