"""One module per verb or for a few that belong together: their options and help texts.

Nothing here takes long to import. `cli/help.py` has which verb is where. Not here: the work, which is in
`cli/actions` and is imported when the verb runs. Start with `launch`.
"""
