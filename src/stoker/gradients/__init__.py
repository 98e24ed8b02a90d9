"""What DistributedDataParallel sends, in fewer bits."""
