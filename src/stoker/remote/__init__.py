"""Worker processes on other machines."""
