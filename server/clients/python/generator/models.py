"""Writes the types, by datamodel-code-generator."""

import copy
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .document import Unsupported

_ID = {"type": "integer", "description": "The position in the stream; several events can have the same."}

_EVENT = (
    "An event of a stream. Blocks and deltas of the agent with other types are events of that name too: ignore\n"
    "names that you do not know."
)


def write_types(document: dict[str, Any]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "openapi.json"), Path(folder, "types.py")
        source.write_text(json.dumps(_with_named_events(document)), encoding="utf-8")
        options = [
            ("--input", source),
            ("--input-file-type", "openapi"),
            ("--output", target),
            ("--output-model-type", "typing.TypedDict"),
            ("--target-python-version", "3.11"),
            ("--formatters", "builtin"),
        ]
        command = [sys.executable, "-m", "datamodel_code_generator", *(str(part) for pair in options for part in pair)]
        command += ["--disable-timestamp", "--use-schema-description", "--use-field-description"]
        command += ["--use-union-operator", "--use-standard-collections"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise Unsupported(f"datamodel-code-generator failed: {done.stderr.strip()}")
        lines = target.read_text(encoding="utf-8").splitlines()
    # Its own head names the temporary file.
    start = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    return '"""The objects of the API, as they are on the wire."""\n\n' + "\n".join(lines[start:]).strip() + "\n"


def _with_named_events(document: dict[str, Any]) -> dict[str, Any]:
    """Names each event of a stream, and adds its id."""
    document = copy.deepcopy(document)
    schemas = document["components"]["schemas"]
    events = schemas.pop("StreamEvent")
    names = []
    for event in events["oneOf"]:
        [name] = event["properties"]["event"]["enum"]
        title = "".join(word.title() for word in name.split("_"))
        data = event["properties"]["data"]
        if "properties" in data:
            _add(schemas, f"{title}Data", data)
            event["properties"]["data"] = {"$ref": f"#/components/schemas/{title}Data"}
        else:
            data.pop("description", None)
        event["properties"] |= {"id": _ID}
        event["required"] = ["id", *event["required"]]
        _add(schemas, f"{title}Event", event)
        names.append(f"{title}Event")
    # A member for other names, whose `event` is any string, would keep type checkers from telling the members apart.
    references = [{"$ref": f"#/components/schemas/{name}"} for name in names]
    _add(schemas, "Event", {"description": _EVENT, "oneOf": references})
    # Only the schemas are wanted; types for inline parts of operations would be unused.
    return {**document, "paths": {}}


def _add(schemas: dict[str, Any], name: str, schema: dict[str, Any]) -> None:
    if name in schemas:
        raise Unsupported(f"the schema {name} exists already")
    schemas[name] = schema
