"""One CPU of a cluster: a process that makes batches for a trainer on another machine."""
