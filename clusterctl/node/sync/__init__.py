"""Code on a node: contents by hash (`store`), trees (`layout`), from node to node (`transfer`), files that a
run leaves outside its output directory (`outside_files`).
"""
