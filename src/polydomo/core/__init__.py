"""The broker itself: jobs, services, queues, workers, liveness, dispatch, retries.

Pure and deterministic: time is handed in, and the only ways out are the ports in `ports.py`.
"""
