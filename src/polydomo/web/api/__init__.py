"""The REST API: one module per subject, each gives a router; `app` joins them."""
