"""Remembers deterministic work: what samples compute before their first random draw."""
