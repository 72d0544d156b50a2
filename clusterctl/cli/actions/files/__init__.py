"""Files between this machine and the nodes: `pull` downloads results, `copy` is `clusterctl cp`.

Not here: options (`cli/commands/pull`) and the transfer itself (`client/files`). Start with `pull`.
"""
