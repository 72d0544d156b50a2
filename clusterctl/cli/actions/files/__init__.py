"""Files between this machine and the nodes: `pull` downloads results, `copy` is `clusterctl cp`.

Not here: options (`cli/commands/runs`) and the transfer itself (`client/files`). Start with `pull`.
"""
