"""Someone who listens between a site and the coordinator, and reads through the TLS.

It holds the coordinator's own certificate, so the site talks to it as to the SuperLink; what the
site sends is copied before it goes on.
"""

from __future__ import annotations

import socket
import ssl
import threading
from types import TracebackType

from fedcover.carriers.network.flower import free_port, keys
from fedcover.carriers.network.flower.local import LocalFederation


class Tap:
    """Listens on ``address``."""

    def __init__(self, federation: LocalFederation) -> None:
        self._far = (federation.host, federation.port)
        self._inside = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._inside.load_cert_chain(federation.keys / keys.CERTIFICATE, federation.keys / keys.KEY)
        self._outside = ssl.create_default_context(cafile=str(federation.keys / keys.CA))
        self._port = free_port()
        self.address = f"{federation.host}:{self._port}"
        self._heard: list[bytearray] = []  # by connection

    def __enter__(self) -> Tap:
        self._listener = socket.create_server((self._far[0], self._port))
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()

    def take(self) -> bytes:
        """All that the site has sent since this was last asked for."""
        taken = b"\n".join(bytes(one) for one in self._heard)
        for one in self._heard:
            one.clear()
        return taken

    def _accept(self) -> None:
        while True:
            try:
                site, _ = self._listener.accept()
            except OSError:  # it was closed
                return
            threading.Thread(target=self._connect, args=(site,), daemon=True).start()

    def _connect(self, plain: socket.socket) -> None:
        try:
            site = self._inside.wrap_socket(plain, server_side=True)
            far = self._outside.wrap_socket(
                socket.create_connection(self._far), server_hostname=self._far[0]
            )
        except OSError:  # the coordinator has gone, or the site
            plain.close()
            return
        copy = bytearray()
        self._heard.append(copy)
        threading.Thread(target=_pump, args=(far, site, bytearray()), daemon=True).start()
        _pump(site, far, copy)


def _pump(source: socket.socket, target: socket.socket, copy: bytearray) -> None:
    try:
        while chunk := source.recv(1 << 16):
            copy += chunk
            target.sendall(chunk)
    except OSError:  # one of the two has gone
        pass
    finally:
        for end in (source, target):
            end.close()
