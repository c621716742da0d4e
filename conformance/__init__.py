"""The conformance suite: proves a server, a client or a codec right against the protocol, whatever it is written in."""
