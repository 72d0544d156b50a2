"""What a launch will run: ranks, addresses, environment, command lines.

`placement` chooses nodes and ranks, `network` addresses, `launchers` command lines; `plan` joins them, `agent_spec`
is the form that a node's agent reads. Not here: starting it (`client/launch`). Start with `plan`.
"""
