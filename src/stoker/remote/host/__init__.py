"""The other machine's side: a process that runs workers for a trainer."""
