"""What can be said of a graph before it runs: regions, partitions, and the order of reads and updates."""
