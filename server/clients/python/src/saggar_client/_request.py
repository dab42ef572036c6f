"""Requests: addresses, keys and parameters. No I/O."""

import ssl
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

import httpx

from ._errors import ApiError

Parameter = str | int | bool | None


@dataclass(frozen=True)
class Request:
    """A request of the API. Parameters that are None are not sent."""

    method: str
    path: str
    query: Mapping[str, Parameter] = field(default_factory=dict)
    headers: Mapping[str, Parameter] = field(default_factory=dict)
    body: object = None

    @property
    def is_repeatable(self) -> bool:
        """Whether the request can be sent again if its answer was lost."""
        return self.method == "GET"


def fill_path(template: str, **parameters: str) -> str:
    """Inserts parameters into the path of an operation.

    A file path (`{path}` at the end) keeps its slashes; each other parameter is one segment. Raises ValueError for a
    segment that would name another route.
    """
    filled = {}
    for name, value in parameters.items():
        is_file_path = name == "path" and template.endswith("/{path}")
        segments = value.split("/") if is_file_path else [value]
        for segment in segments:
            if segment in ("", ".", ".."):
                part = "has an empty segment" if not segment else f"has the segment {segment!r}"
                raise ValueError(f"{name} is {value!r}: it {part}, which would name another address")
        filled[name] = "/".join(quote(segment, safe="") for segment in segments)
    return template.format(**filled)


def to_text(values: Mapping[str, Parameter]) -> dict[str, str]:
    """Converts parameters to the form of the wire."""
    text = {True: "true", False: "false"}
    return {
        name: text[value] if isinstance(value, bool) else str(value)
        for name, value in values.items()
        if value is not None
    }


def to_headers(values: Mapping[str, Parameter]) -> dict[str, str]:
    """Converts parameters to headers, whose values must be printable ASCII."""
    headers = to_text(values)
    for name, value in headers.items():
        if not value or not all(" " <= character <= "~" for character in value):
            raise ValueError(f"{name} is {value!r}; it must be printable ASCII")
    return headers


def check_url(url: str) -> str:
    """Returns the address of a server without a slash at its end."""
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL:
        raise ValueError("the address of the server is not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.host:
        raise ValueError("the address of the server must begin with http:// or https://")
    if parts.userinfo or "?" in url or "#" in url:
        raise ValueError("the address of the server must have no user, query or fragment")
    return str(parts).rstrip("/")


def authorization(key: str | None) -> dict[str, str]:
    """Returns the header for this API key."""
    if key is None:
        return {}
    # A library below would repeat an invalid header in its error, with the key.
    if not key or not all("!" <= character <= "~" for character in key):
        raise ValueError("the API key must be printable ASCII without spaces; was it read with its line break?")
    return {"Authorization": f"Bearer {key}"}


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Trusts the authorities of the system, or only those of this file (PEM)."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ValueError(f"ca_file is {ca_file!r}, which has no certificates that can be read: {error}") from error


def new_key() -> str:
    """Returns a new `Idempotency-Key`."""
    return str(uuid.uuid4())


def parse_json(response: httpx.Response) -> object:
    """Returns the object of a response."""
    try:
        return response.json()
    except ValueError:
        raise ApiError(response.status_code, "the response is not JSON", response.text) from None
