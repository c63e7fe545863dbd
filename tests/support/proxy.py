"""A TCP proxy whose connections can be cut."""

from __future__ import annotations

import contextlib
import socket
import threading


class Proxy:
    """Listens on its own port and forwards data both ways until it is told to cut."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        self._to = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.accepted = 0
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        """Break every connection on both sides; new ones are forwarded again."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        self.cut()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._to)
            except OSError:
                return
            self.accepted += 1
            self._pairs.append((near, far))
            both = threading.Semaphore(0)
            for source, sink in ((near, far), (far, near)):
                thread = threading.Thread(target=self._pass_on, args=(source, sink, both))
                self._threads.append(thread)
                thread.start()

    @staticmethod
    def _pass_on(source: socket.socket, sink: socket.socket, other: threading.Semaphore) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            source.shutdown(socket.SHUT_RDWR)
        if other.acquire(blocking=False):  # the last of both directions
            source.close()
            sink.close()
        else:
            other.release()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
