"""Tasks without a trial: how they are launched, and what is served of them."""
