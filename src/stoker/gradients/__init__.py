"""Compresses the gradients that DistributedDataParallel sends between ranks (--gradients)."""
