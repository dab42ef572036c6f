"""A TCP proxy that cuts connections after a number of bytes of the server."""

import socket
import threading
from collections.abc import Iterable


class CuttingProxy:
    """Cuts the n-th connection after the n-th number of bytes; later connections are not cut."""

    def __init__(self, port: int, cuts: Iterable[int]) -> None:
        self._port, self._cuts = port, list(cuts)
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            limit = self._cuts[self.connections] if self.connections < len(self._cuts) else None
            self.connections += 1
            server = socket.create_connection(("127.0.0.1", self._port))
            threading.Thread(target=_copy, args=(client, server, None), daemon=True).start()
            threading.Thread(target=_copy, args=(server, client, limit), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket, limit: int | None) -> None:
    """Copies until the end, or until this number of bytes; then closes both."""
    try:
        while limit != 0 and (chunk := source.recv(65536 if limit is None else limit)):
            target.sendall(chunk)
            limit = None if limit is None else limit - len(chunk)
    except OSError:
        pass  # The other direction has closed them.
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # The peer has closed it.
