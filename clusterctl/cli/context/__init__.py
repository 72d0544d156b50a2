"""What every verb sets up first: files, connections, exit codes.

`load` reads inventory and job, `code` the job's source tree, `nodes` opens connections and reports failed
nodes, `bug_report` writes the file of a bug. Not here: parsing (`specs/`). Start with `load`.
"""
