"""Generates the client from server/openapi.json: `python3 -m generator` in the folder of the client."""
