"""SP, the wire protocol of nanomsg and NNG, for REQ and REP over TCP and IPC."""
