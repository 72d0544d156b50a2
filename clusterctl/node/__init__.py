"""Code that is sent to nodes and runs there.

Standard library only, Python 3.8 and later, relative imports, no import from outside except `protocol`. `boot` runs
first and loads one of `verbs/`; `main` is the entry of the zip, from which guardian and agent run. Modules stay
small where joining them would enlarge a verb's bundle. Not here: the client's side (`client/rpc`). Start with
`verbs/start`, then `supervise/`.
"""
