"""Inventories from the files of other tools: `detect` recognises the format, each format has a module,
`imported` is what they return.
"""
