"""The master: the daemon that joins engine, state, scheduler and the wire. Only this room sees them all."""
