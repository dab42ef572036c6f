-- Copies of sessions in the snapshot store, so that another machine can resume them.

-- A random text, new for each restore from a copy; empty before the first one. Files of the session on a machine are used
-- only if that machine has the same text.
ALTER TABLE sessions ADD COLUMN generation TEXT NOT NULL DEFAULT '';
-- The objects of the copy, their sizes and their hashes: a JSON object. Null if there is no copy.
ALTER TABLE sessions ADD COLUMN copy TEXT;
-- The same for the folder of an agent.
ALTER TABLE agents ADD COLUMN copy TEXT;
