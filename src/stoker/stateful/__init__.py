"""torchdata's StatefulDataLoader: the same batches, and the same state at every one of them."""
