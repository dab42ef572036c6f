"""Client of saggar-server: agents in sandboxes over HTTP."""

from . import types
from ._async_client import AsyncClient
from ._async_transport import AsyncEventStream
from ._client import Client
from ._errors import ApiError, ConnectionFailed, SaggarError
from ._transport import EventStream

__all__ = [
    "ApiError",
    "AsyncClient",
    "AsyncEventStream",
    "Client",
    "ConnectionFailed",
    "EventStream",
    "SaggarError",
    "types",
]
