"""Carries batches between trainer and worker: encoding, frames, sockets and shared memory."""
