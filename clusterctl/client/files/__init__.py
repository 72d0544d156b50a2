"""Files between this machine and nodes: what a node lists, how it arrives, and what is passed on.

`node_files` is the conversation with a node, `receiver` writes what arrives, `target_dir` below one directory only.
Not here: files of this machine that are sent (`client/sync`), and which names are accepted
(`plans/sync/listed_files`).
"""
