"""Talks to the storage process, from a trainer, a worker or a command."""
