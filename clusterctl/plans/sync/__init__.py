"""Which files are sent or downloaded.

`ignore` has the `.gitignore` rules, `manifest` a tree and its hash, `results` the names that a node may send. Not
here: transfers (`client/sync`, `client/results`). Start with `manifest`.
"""
