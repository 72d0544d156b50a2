"""What a launch will run: nodes and ranks (`placement`), addresses (`network`), command lines (`launchers`),
the plan itself (`plan`) and the text of it that a node's agent gets (`agent_spec`).
"""
