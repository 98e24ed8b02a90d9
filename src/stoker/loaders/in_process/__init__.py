"""Loaders without workers: their batches are made on cores that are idle, where nobody can tell."""
