"""Frames to calls on the core and back, without I/O. One folder per protocol, each with the same files: messages.py
(codec), session.py (one connection), broker_client.py and broker_worker.py (the broker's side), client.py and worker.py
(our SDK's side)."""
