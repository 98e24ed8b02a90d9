"""The trainer's side: its receiver process, which hosts dial, and the handle on it."""
