"""Inventories from files of other tools, and from what Ansible lists of its own.

`detect` recognises the format, each format has a module, `imported` is what they return. Not here: writing the
inventory (`specs/inventory/render`). Start with `detect`.
"""
