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
