"""Files between this machine and nodes: what a node lists, how it arrives, and what is sent.

`node_files` is the conversation with a node, `receiver` writes what arrives, `target_dir` below one directory only,
and `sending` has files for nodes. Not here: which names are accepted (`plans/sync/listed_files`).
"""
