"""CURVE, ZMTP's encrypted and authenticated security mechanism (RFC 26/CurveZMQ), for both ends of a connection."""
