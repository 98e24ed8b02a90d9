"""Mounts folders for a run, and starts the process that serves them."""
