"""Which files are sent or downloaded.

`ignore` has the `.gitignore` rules, `manifest` a tree and its hash, `listed_files` what a node may send, and the paths
of `cp`. Not here: transfers (`client/sync`, `client/files`). Start with `manifest`.
"""
