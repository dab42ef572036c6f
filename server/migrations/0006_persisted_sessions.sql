-- Copies of sessions in the snapshot store, so that another machine can resume them.

-- Increased when a server restores the session from its copy. Files of an earlier generation are those of a machine that the
-- session has left.
ALTER TABLE sessions ADD COLUMN generation BIGINT NOT NULL DEFAULT 0;
-- The objects of the copy, their sizes and their hashes: a JSON object. Null if there is no copy.
ALTER TABLE sessions ADD COLUMN copy TEXT;
-- The same for the folder of an agent.
ALTER TABLE agents ADD COLUMN copy TEXT;
