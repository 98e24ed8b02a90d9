"""Batches across machines: hosts dial the trainer's receiver, which puts what they send into arenas."""
