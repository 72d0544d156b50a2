"""Send the job's code to the nodes.

`scan` walks the source tree, `contents` hashes it, `upload` sends it to one node, `distribute` lets nodes pass it
on. Not here: what is ignored (`plans/sync`) and the node's side (`node/sync`). Start with `upload`.
"""
