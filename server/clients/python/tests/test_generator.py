"""The generated files are current, and the generator refuses what it does not know."""

import copy
import json
import unittest
from pathlib import Path
from typing import Any

from generator.document import Unsupported, read_operations
from generator.files import check
from generator.methods import write_methods

DOCUMENT: dict[str, Any] = json.loads(Path(__file__).parents[3].joinpath("openapi.json").read_text(encoding="utf-8"))


class Generator(unittest.TestCase):
    def test_generated_files_are_current(self) -> None:
        self.assertEqual(check(), [])

    def refused(self, change: Any) -> None:
        document = copy.deepcopy(DOCUMENT)
        change(document["paths"])
        with self.assertRaises(Unsupported):
            write_methods(read_operations(document))

    def test_what_it_does_not_know_is_refused(self) -> None:
        agents, session = "/api/agents", "/api/sessions/{id}"
        events = {"text/event-stream": {"schema": {"$ref": "#/components/schemas/StreamEvent"}}}

        def ok(paths: Any) -> Any:
            return paths[agents]["get"]["responses"]["200"]

        cookie = {"name": "c", "in": "cookie", "required": False, "schema": {"type": "string"}}
        array = {"name": "c", "in": "query", "required": False, "schema": {"type": "array"}}
        self.refused(lambda paths: ok(paths).update(content={"application/xml": {"schema": {"type": "string"}}}))
        self.refused(lambda paths: ok(paths)["content"].update({"text/plain": {"schema": {"type": "string"}}}))
        self.refused(lambda paths: ok(paths).update(content=events))
        self.refused(lambda paths: ok(paths).update(content={}))
        self.refused(lambda paths: paths[agents]["get"].update(parameters=[cookie]))
        self.refused(lambda paths: paths[agents]["get"].update(parameters=[array]))
        self.refused(lambda paths: paths[agents]["get"].update(callbacks={}))
        self.refused(lambda paths: paths[agents].update(trace=paths[agents]["get"]))
        self.refused(lambda paths: paths[session]["get"].update(parameters=[]))
        self.refused(lambda paths: paths[agents]["get"].update(operationId="getAgent"))
        body = {"required": True, "content": {"multipart/form-data": {"schema": {}}}}
        self.refused(lambda paths: paths[agents]["post"].update(requestBody=body))
