"""Writes the asynchronous client: one method for each operation."""

from .document import SELECTED, Operation, Parameter, Result, Unsupported

_STREAMS = {"sendMessage": "idempotency-key", "streamSession": "last-event-id"}


def write_methods(operations: list[Operation]) -> str:
    streamed = {operation.id for operation in operations if _only(operation).kind == "events"}
    if streamed != set(_STREAMS):
        raise Unsupported(f"the streams are {sorted(streamed)}")
    return _HEAD + "".join("\n" + _method(operation) for operation in operations)


def _only(operation: Operation) -> Result:
    return next(iter(operation.results.values()))


def _method(operation: Operation) -> str:
    if operation.id in SELECTED:
        return _selected(operation)
    result = _only(operation)
    if result.kind == "events":
        return _signature(operation, "AsyncEventStream", prefix="def") + _doc(operation) + _stream(operation)
    text = _signature(operation, result.type) + _doc(operation)
    text += f"        response = await self._transport.call({_request(operation)})\n"
    return text + f"        return {_read(result)}\n"


def _selected(operation: Operation) -> str:
    """A method whose parameter `format` selects one of two results."""
    media, value, other, default = SELECTED[operation.id]
    first, second = operation.results[media], operation.results[other]
    [selector] = operation.placed("query")
    if selector.name != "format":
        raise Unsupported(f"{operation.id}: the parameter {selector.wire}")
    default_type = f'Literal["{default}"] | None = None' if default else "None = None"
    text = "    @overload\n" + _signature(operation, first.type, {"format": f'Literal["{value}"]'}) + "        ...\n\n"
    text += "    @overload\n" + _signature(operation, second.type, {"format": default_type})
    text += "        ...\n\n"
    values = ", ".join(f'"{known}"' for known in (value, default) if known)
    both = f"{first.type} | {second.type}"
    text += _signature(operation, both, {"format": f"Literal[{values}] | None = None"}) + _doc(operation)
    text += f"        response = await self._transport.call({_request(operation)})\n"
    text += f'        if format == "{value}":\n            return {_read(first)}\n'
    return text + f"        return {_read(second)}\n"


def _signature(
    operation: Operation, result: str, types: dict[str, str] | None = None, prefix: str = "async def"
) -> str:
    arguments = ["self", *(f"{parameter.name}: str" for parameter in operation.placed("path"))]
    if operation.body:
        arguments.append(f"body: {operation.body}")
    arguments.append("/")
    if named := operation.placed("query") + operation.placed("header"):
        arguments.append("*")
        arguments += [f"{named_one.name}: {_type(named_one, types)}" for named_one in named]
    if arguments == ["self", "/"]:
        arguments = ["self"]
    line = f"    {prefix} {operation.name}({', '.join(arguments)}) -> {result}:\n"
    if len(line) > 121:
        rows = "".join(f"        {argument},\n" for argument in arguments)
        line = f"    {prefix} {operation.name}(\n{rows}    ) -> {result}:\n"
    return line


def _type(parameter: Parameter, types: dict[str, str] | None) -> str:
    return (types or {}).get(parameter.name) or f"{parameter.type} | None = None"


def _doc(operation: Operation) -> str:
    return f'        """{operation.summary}"""\n'


def _request(operation: Operation) -> str:
    path = f'"{operation.path}"'
    if names := [parameter.wire for parameter in operation.placed("path")]:
        path = f"fill_path({path}, {', '.join(f'{name}={name}' for name in names)})"
    arguments = [f'"{operation.method}"', path]
    if query := operation.placed("query"):
        arguments.append(f"query={_dict(query)}")
    if sent := operation.placed("header"):
        arguments.append(f"headers={_dict(sent)}")
    if operation.body:
        arguments.append("body=body")
    line = f"Request({', '.join(arguments)})"
    if len(line) <= 60:
        return line
    rows = "".join(f"                {one},\n" for one in arguments)
    return f"\n            Request(\n{rows}            )\n        "


def _dict(parameters: list[Parameter]) -> str:
    return "{" + ", ".join(f'"{parameter.wire}": {parameter.name}' for parameter in parameters) + "}"


def _read(result: Result) -> str:
    match result.kind:
        case "json":
            return f"cast({result.type}, parse_json(response))"
        case "text":
            return "response.text"
        case "bytes":
            return "response.content"
    raise Unsupported(f"the result {result.kind}")


def _stream(operation: Operation) -> str:
    if [parameter.wire for parameter in operation.placed("header")] != [_STREAMS[operation.id]]:
        raise Unsupported(f"{operation.id}: other headers than {_STREAMS[operation.id]}")
    if operation.id == "sendMessage":
        text = "        idempotency_key = new_key() if idempotency_key is None else idempotency_key\n"
        return text + f"        return self._transport.stream_turn({_request(operation)})\n"
    text = "        start = last_event_id if last_event_id is not None else after or 0\n"
    text += '        session = Request("GET", fill_path("/api/sessions/{id}", id=id))\n'
    text += f'        stream = Request("GET", fill_path("{operation.path}", id=id))\n'
    return text + "        return self._transport.stream_session(stream, session, start)\n"


_HEAD = '''"""The asynchronous client."""

from typing import Any, Literal, cast, overload

from . import types
from ._async_base import AsyncBase
from ._async_transport import AsyncEventStream
from ._request import Request, fill_path, new_key, parse_json


class AsyncClient(AsyncBase):
    """The API of a saggar-server, with one method for each operation."""
'''
