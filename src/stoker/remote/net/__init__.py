"""Connects machines: how messages, jobs and batches are sent between them."""
