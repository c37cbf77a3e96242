"""Who asks: tokens, addresses, and the share of each client."""
