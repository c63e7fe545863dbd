"""MemoDB's protocol, `memo01`.

Beside the files of every dialect there are `connection.py`, because memo01 is spoken over NNG instead of ZeroMQ and has
its own connection object, and `reconnect.py`, because NNG repeats requests on a new connection by itself.
"""
