"""Implements the other machine's side: a host process, which runs workers for a trainer."""
