"""What every verb sets up first: files, connections, exit codes.

`load` reads inventory and job, `code` the job's source tree, `nodes` opens connections, chooses exit codes and
writes bug reports. Not here: parsing (`specs/`). Start with `load`.
"""
