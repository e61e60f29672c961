"""Commands with a module of their own, which the nouns' groups import when they are used, and what only they print."""
