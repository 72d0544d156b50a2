"""What every verb sets up first: files, connections, exit codes.

`load` reads inventory and job, `code` the job's source tree, `nodes` opens connections and reports failed
nodes and bugs, `run_output` how a run is reported. Not here: parsing (`specs/`). Start with `load`.
"""
