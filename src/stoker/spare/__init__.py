"""Loaders without workers: their batches are made on spare cores, where nobody can tell."""
