"""Where hosts come from: Ray, or plain processes."""
