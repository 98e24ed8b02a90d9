"""Runs the receiver process, which hosts dial, and holds the trainer's handle on it."""
