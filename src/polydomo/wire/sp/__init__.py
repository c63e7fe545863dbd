"""SP, the wire of nanomsg and NNG, for REQ and REP over TCP and IPC: hello, messages, request-ID stacks."""
