"""Types that other packages use of scheduling: tasks, slots, points, chains, the batches' order."""
