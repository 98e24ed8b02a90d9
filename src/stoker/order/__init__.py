"""Which sample, when, with which randomness."""
