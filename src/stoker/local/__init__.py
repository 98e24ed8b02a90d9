"""Runs worker processes on this machine."""
