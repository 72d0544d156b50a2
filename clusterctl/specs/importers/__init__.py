"""Inventories from files of other tools, and from what Ansible lists itself.

`formats` lists the formats, `detect` recognises one, `hostfile` and `ansible` read it, `imported` is what they return.
Not here: writing the inventory (`specs/render`). Start with `detect`.
"""
