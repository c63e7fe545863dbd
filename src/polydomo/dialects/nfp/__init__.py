"""NORFAB's protocol (NFP), in the specification's form and in that of norfab 0.25.

Besides the usual files: clients come in three variants, which differ in what they are told (broker_client_variants.py,
replies.py); clients can query workers through the broker (worker_queries.py, worker_info.py); and bodies are JSON
(json_bodies.py).
"""
