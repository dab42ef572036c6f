"""Reads the operations of the OpenAPI document, and fails on all that it does not understand."""

import keyword
import re
from dataclasses import dataclass
from typing import Any

_METHODS = {"get", "post", "put", "patch", "delete"}
_OPERATION_KEYS = {
    "operationId",
    "summary",
    "description",
    "tags",
    "security",
    "parameters",
    "requestBody",
    "responses",
}
_TEXT = {"text/plain", "text/html", "text/x-diff"}
_BYTES = {"application/octet-stream", "application/gzip", "*/*"}
_SCALARS = {"string": "str", "integer": "int", "boolean": "bool", "number": "float"}

# The values of `format` that select a media type, and whether it is the default. The document says it in words only.
SELECTED = {
    "getAgentFile": ("application/octet-stream", "raw", "application/json", "json"),
    "getSessionFile": ("application/json", "json", "*/*", None),
    "getSessionDiff": ("text/x-diff", "patch", "application/json", None),
}


class Unsupported(Exception):
    """The document has something that the generator does not know."""


@dataclass(frozen=True)
class Parameter:
    wire: str
    place: str
    type: str

    @property
    def name(self) -> str:
        return snake_case(self.wire)


@dataclass(frozen=True)
class Result:
    """A response: how its body is read (json, text, bytes or events), and its type."""

    kind: str
    type: str


@dataclass(frozen=True)
class Operation:
    id: str
    method: str
    path: str
    summary: str
    parameters: tuple[Parameter, ...]
    body: str | None
    results: dict[str, Result]

    @property
    def name(self) -> str:
        return snake_case(self.id)

    def placed(self, place: str) -> list[Parameter]:
        return [parameter for parameter in self.parameters if parameter.place == place]


def snake_case(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()
    return words + "_" if keyword.iskeyword(words) else words


def read_operations(document: dict[str, Any]) -> list[Operation]:
    found = []
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method not in _METHODS:
                raise Unsupported(f"{path}: {method!r} is not a method")
            where = f"{method.upper()} {path}"
            _known(where, operation, _OPERATION_KEYS)
            found.append(_operation(where, method, path, operation))
    names = [operation.name for operation in found]
    if len(set(names)) != len(names):
        raise Unsupported("two operations have the same name")
    return found


def _operation(where: str, method: str, path: str, value: dict[str, Any]) -> Operation:
    parameters = tuple(_parameter(where, parameter) for parameter in value.get("parameters", []))
    in_path = [parameter.wire for parameter in parameters if parameter.place == "path"]
    if in_path != re.findall(r"{(\w+)}", path):
        raise Unsupported(f"{where}: the path parameters are not those of the path, in its order")
    results = {}
    for status, response in value["responses"].items():
        for media, content in response.get("content", {}).items():
            if status.startswith("2"):
                results[media] = _result(where, media, content["schema"])
            elif media != "application/json" or type_of(where, content["schema"]) != "types.Error":
                raise Unsupported(f"{where}: the response {status} is not an Error")
    if value["operationId"] not in SELECTED and len(results) != 1:
        raise Unsupported(f"{where}: not known which of {list(results)} is sent")
    if value["operationId"] in SELECTED and set(SELECTED[value["operationId"]][::2]) != set(results):
        raise Unsupported(f"{where}: the media types are {list(results)}")
    return Operation(
        value["operationId"], method.upper(), path, value["summary"], parameters, _body(where, value), results
    )


def _parameter(where: str, value: dict[str, Any]) -> Parameter:
    _known(where, value, {"name", "in", "description", "required", "schema"})
    place, where = value["in"], f"{where}: {value['name']}"
    if place not in ("path", "query", "header"):
        raise Unsupported(f"{where} is in {place!r}")
    if value["required"] is not (place == "path"):
        raise Unsupported(f"{where}: required is {value['required']}")
    schema = {key: item for key, item in value["schema"].items() if key != "default"}
    kind = type_of(where, schema).removesuffix(" | None")
    if place == "path" and kind != "str":
        raise Unsupported(f"{where} is a {kind}")
    return Parameter(value["name"], place, kind)


def _body(where: str, value: dict[str, Any]) -> str | None:
    if "requestBody" not in value:
        return None
    content = value["requestBody"]["content"]
    if set(content) != {"application/json"} or value["requestBody"].get("required") is not True:
        raise Unsupported(f"{where}: the body is {value['requestBody']}")
    return type_of(where, content["application/json"]["schema"])


def _result(where: str, media: str, schema: dict[str, Any]) -> Result:
    if media == "application/json":
        return Result("json", type_of(where, schema))
    if media == "text/event-stream" and schema == {"$ref": "#/components/schemas/StreamEvent"}:
        return Result("events", "EventStream")
    if media in _TEXT and schema == {"type": "string"}:
        return Result("text", "str")
    if media in _BYTES and schema == {"$ref": "#/components/schemas/BinaryFile"}:
        return Result("bytes", "bytes")
    raise Unsupported(f"{where}: the media type {media!r} with the schema {schema}")


def type_of(where: str, schema: dict[str, Any]) -> str:
    """The type of a parameter or of a whole body. Types with fields are in the module `types`."""
    if "$ref" in schema:
        return f"types.{schema['$ref'].removeprefix('#/components/schemas/')}"
    if schema.get("type") == "object" and schema.get("additionalProperties") == {} and "properties" not in schema:
        return "dict[str, Any]"
    _known(where, schema, {"type", "format", "enum", "description", "minimum", "maximum", "minLength", "maxLength"})
    if "enum" in schema:
        return f"Literal[{', '.join(repr(value).replace(chr(39), chr(34)) for value in schema['enum'])}]"
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    named = [_SCALARS.get(kind) for kind in kinds if kind != "null"]
    if len(named) != 1 or named[0] is None:
        raise Unsupported(f"{where}: the schema {schema}")
    return named[0] + (" | None" if "null" in kinds else "")


def _known(where: str, value: dict[str, Any], keys: set[str]) -> None:
    if unknown := set(value) - keys:
        raise Unsupported(f"{where}: {', '.join(sorted(unknown))}")
