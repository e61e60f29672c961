"""The master: the daemon that connects engine, database, scheduler and HTTP interface. No other package imports all of them."""
