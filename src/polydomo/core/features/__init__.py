"""Promises about jobs, one per file, all behind one interface (`feature.Feature`).

A plain job passes no feature. A job with options, or of a service that a feature applies to, is a `TrackedJob` and
passes them in the order of `Broker.features`.
"""
