"""Send the job's code to the nodes.

`scan` walks the source tree without what git ignores, `contents` hashes it, `upload` sends it to nodes or has them pass
it on. Not here: the patterns of `sync.exclude` (`plans/sync`) and the node's side (`node/sync`). Start with `upload`.
"""
