"""A noisy principal, in a process of its own: `python -m tests.support.noise ENDPOINT CONNECTIONS SERVICE KEYS…`.

Each connection sends requests as fast as its socket takes them, and reads what comes back. The process prints a line
when all connections have sent something, and ends with its standard input. KEYS: server's public key, own public key,
own secret key (Z85), each after a colon, so that none looks like an option.
"""

from __future__ import annotations

import sys
import time

import zmq

# Requests that one turn sends by one connection, and seconds between two turns: the flood is to load the broker, not
# the machine.
BURST = 20
PAUSE = 0.005

BODY = bytes(200)


def main(
    endpoint: str, connections: int, service: bytes, server: bytes, public: bytes, secret: bytes
) -> None:
    """Flood until standard input ends."""
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, connections + 100)
    for option, value in (
        (zmq.CURVE_SERVERKEY, server),
        (zmq.CURVE_PUBLICKEY, public),
        (zmq.CURVE_SECRETKEY, secret),
        (zmq.LINGER, 0),
        (zmq.SNDHWM, BURST),
    ):
        context.setsockopt(option, value)
    sockets = [context.socket(zmq.DEALER) for _ in range(connections)]
    for socket in sockets:
        socket.connect(endpoint)
    silent = set(sockets)
    poller = zmq.Poller()
    poller.register(sys.stdin.fileno(), zmq.POLLIN)
    for socket in sockets:
        poller.register(socket, zmq.POLLIN | zmq.POLLOUT)
    while True:
        ready = dict(poller.poll())
        time.sleep(PAUSE)
        if sys.stdin.fileno() in ready:
            break
        for socket, events in ready.items():
            if events & zmq.POLLIN:
                socket.recv_multipart()
            if events & zmq.POLLOUT:
                _send(socket, service)
                if silent:
                    silent.discard(socket)
                    if not silent:
                        print("loud", flush=True)
    context.destroy(0)


def _send(socket: zmq.Socket[bytes], service: bytes) -> None:
    try:
        for _ in range(BURST):
            socket.send_multipart([b"MDPC02", b"\x01", service, BODY], zmq.DONTWAIT)
    except zmq.Again:
        pass


if __name__ == "__main__":
    place, count, name, *keys = sys.argv[1:]
    main(place, int(count), name.encode(), *(key[1:].encode() for key in keys))
