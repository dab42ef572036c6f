-- The keys by which clients repeat a message (the header Idempotency-Key).
CREATE TABLE message_keys (
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    idempotency_key TEXT NOT NULL,
    -- SHA-256 of the body in hexadecimal digits: a key stands for one message.
    body_hash TEXT NOT NULL,
    -- The command id of the turn.
    turn_id TEXT NOT NULL,
    -- The number of a bridge event before those of the turn.
    after_event BIGINT NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (session_id, idempotency_key)
);
