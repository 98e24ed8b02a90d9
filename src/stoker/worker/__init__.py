"""The worker process, which makes the batches of a chain."""

is_here = False  # this process is a worker
