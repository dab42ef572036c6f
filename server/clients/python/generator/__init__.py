"""Generates the client from server/openapi.json. `python3 -m generator` in the folder of the client writes the files;
with `--check`, it compares them instead, and fails if one is not current."""
