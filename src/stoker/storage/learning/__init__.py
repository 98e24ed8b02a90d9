"""What samples have read, and so what others will."""
