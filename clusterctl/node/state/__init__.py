"""What a node keeps on disk and in sockets: the work directory, records of runs, locks, environments."""
