-- Copies of sessions in the snapshot store, so that another machine can resume them.

-- A random text, new for each restore from a copy; empty before the first one. Files of the session on a machine are used
-- only if that machine has the same text.
ALTER TABLE sessions ADD COLUMN generation TEXT NOT NULL DEFAULT '';
-- The objects of the copy, their sizes and their hashes: a JSON object. Null if there is no copy.
ALTER TABLE sessions ADD COLUMN copy TEXT;
-- The number of changes, and that number when the copy was begun: if they differ, a copy is due.
ALTER TABLE sessions ADD COLUMN changes BIGINT NOT NULL DEFAULT 1;
ALTER TABLE sessions ADD COLUMN copied BIGINT NOT NULL DEFAULT 0;
-- The same for the folder of an agent.
ALTER TABLE agents ADD COLUMN copy TEXT;
ALTER TABLE agents ADD COLUMN changes BIGINT NOT NULL DEFAULT 1;
ALTER TABLE agents ADD COLUMN copied BIGINT NOT NULL DEFAULT 0;
-- The id of the data directory in which the deployed files were changed last; empty for a folder of the operator, and if it
-- is unknown.
ALTER TABLE agents ADD COLUMN machine TEXT NOT NULL DEFAULT '';

-- Objects of the snapshot store that no copy has, or will have until an upload completes.
CREATE TABLE snapshot_removals (
    -- A UUID.
    id TEXT PRIMARY KEY,
    -- A former copy, or a list of keys: JSON.
    objects TEXT NOT NULL,
    -- 0 while their upload is in progress, and 1 when they are to be deleted.
    due BIGINT NOT NULL
);
