"""The yardstick: a bare pyzmq ROUTER that switches MDP/0.2 messages in the best usual form.

Poll, then drain the socket until it would block; per service one deque of waiting requests and one of idle
workers. It has none of the guarantees of a broker: no heartbeats sent, no expiry, no checks, no limits, no
retry. So it is an upper bound for the machine and pyzmq in this form, and the divisor of ratios.

    python bench/yardstick.py tcp://127.0.0.1:5555

With a second argument, the file of a key pair, libzmq requires CURVE and accepts every key of a client.
"""

import sys
from collections import deque

import zmq
import zmq.auth

CLIENT, WORKER = b"MDPC02", b"MDPW02"
READY, REQUEST, PARTIAL, FINAL, HEARTBEAT, DISCONNECT = (bytes([n]) for n in range(1, 7))
CLIENT_PARTIAL, CLIENT_FINAL = b"\x02", b"\x03"  # these commands have other numbers towards a client


class Service:
    """One service's two queues; at most one of them is not empty."""

    __slots__ = ("idle", "name", "waiting")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.waiting: deque[tuple[bytes, list[bytes]]] = deque()  # (client, body frames)
        self.idle: deque[bytes] = deque()  # workers, least recently used first


def serve(endpoint: str, key_file: str = "") -> None:
    router: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
    if key_file:
        router.curve_publickey, router.curve_secretkey = zmq.auth.load_certificate(key_file)
        router.curve_server = True
    # A ROUTER drops messages above its high-water marks, 1,000 by default: the load would lose requests.
    router.sndhwm = router.rcvhwm = 0
    router.bind(endpoint)

    services: dict[bytes, Service] = {}
    offers: dict[bytes, Service] = {}  # service of each worker
    receive, send = router.recv_multipart, router.send_multipart

    while True:
        router.poll()
        while True:
            try:
                frames = receive(zmq.NOBLOCK)
            except zmq.Again:
                break
            peer, header, command = frames[0], frames[1], frames[2]

            if header == CLIENT:
                service = services.get(frames[3])
                if service is None:
                    service = services[frames[3]] = Service(frames[3])
                if service.idle:
                    send([service.idle.popleft(), WORKER, REQUEST, peer, b"", *frames[4:]])
                else:
                    service.waiting.append((peer, frames[4:]))

            elif header == WORKER:
                if command == FINAL:
                    service = offers[peer]
                    send([frames[3], CLIENT, CLIENT_FINAL, service.name, *frames[5:]])
                elif command == PARTIAL:
                    send([frames[3], CLIENT, CLIENT_PARTIAL, offers[peer].name, *frames[5:]])
                    continue
                elif command == READY:
                    service = services.get(frames[3])
                    if service is None:
                        service = services[frames[3]] = Service(frames[3])
                    offers[peer] = service
                elif command == DISCONNECT:
                    gone = offers.pop(peer, None)
                    if gone is not None and peer in gone.idle:
                        gone.idle.remove(peer)
                    continue
                else:  # HEARTBEAT: ignored, workers never expire
                    continue
                # A worker that is ready or done is free for the next request.
                if service.waiting:
                    client, body = service.waiting.popleft()
                    send([peer, WORKER, REQUEST, client, b"", *body])
                else:
                    service.idle.append(peer)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: yardstick.py tcp://HOST:PORT [KEY-FILE]")
    try:
        serve(*sys.argv[1:])
    except KeyboardInterrupt:
        pass  # Ctrl-C is the normal way to stop
