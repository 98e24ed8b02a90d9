"""Shows a run while it lasts: a page, metrics for Prometheus, scalars for TensorBoard. It only reads."""
