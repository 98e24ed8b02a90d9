"""What `stoker verify` records, compares and says."""
