"""What outlives a master: the ledger, the change log, the lease, the harness bundle, contexts."""
