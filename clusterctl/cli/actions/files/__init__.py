"""Files between this machine and the nodes: `pull` downloads results, `copy` is `clusterctl cp`."""
