"""The worker process, which makes the batches of a chain."""
