"""The job's code on a node: store, trees, transfer to other nodes.

`store` keeps contents by hash, `layout` builds trees, `transfer` passes contents to another node, also those that are
still arriving (`received`), `outside_files` finds what a run leaves outside its output directory. Not here: the verb
(`node/verbs/sync`). Start with `store`.
"""
