-- The sandboxes that are started ahead of their sessions. A row is removed when a session takes its sandbox; a server that
-- starts ends the sandboxes of the others, which an earlier server has left.
CREATE TABLE warm_sessions (
    -- Also the id of the session that takes the sandbox.
    id TEXT PRIMARY KEY,
    created_at TEXT NOT NULL
);

-- 1 if the session is paused because the server has ended its sandbox, and not because a client has paused it.
ALTER TABLE sessions ADD COLUMN evicted BIGINT NOT NULL DEFAULT 0;
