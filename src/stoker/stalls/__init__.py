"""What the training thread spends its time on: seen by samples, told as shares of the steps."""
