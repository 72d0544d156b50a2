"""The steps of each verb, one module per verb; `inventory` also has those of `init`.

`preflight` probes and checks the nodes for `check` and `launch`, `find_runs` lists runs for the verbs that take one.
Not here: options (`cli/commands`) and decisions without effects (`plans/`). Start with `launch`.
"""
