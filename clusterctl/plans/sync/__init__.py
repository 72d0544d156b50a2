"""Which files are sent or downloaded.

`ignore` has the `.gitignore` rules, `manifest` a tree and its hash, `received_names` the names that a node may send,
`copy` the paths of `cp`, `outside_files` what a run left elsewhere. Not here: transfers (`client/sync`,
`client/files`). Start with `manifest`.
"""
