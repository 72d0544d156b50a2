"""The command line: finds the verb, runs it, turns the result into an exit code.

`main` has the table of verbs, `options` the options that verbs share. A verb's options are in `commands/`, its
steps in `actions/`. Not here: output (`console/`) and work on nodes (`client/`). Start with `main`.
"""
