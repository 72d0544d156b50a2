"""The command line: `main` finds a verb, `options` is what verbs share.

A verb's options are in `commands/`, its steps in `actions/`, files, connections and exit codes in
`context/`. What is printed is in `console`, what happens on nodes in `client`. Start with `main`, then
`commands/launch`.
"""
