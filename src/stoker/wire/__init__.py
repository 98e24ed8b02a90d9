"""Bytes between trainer and worker."""
