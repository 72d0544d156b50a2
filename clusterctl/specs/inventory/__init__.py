"""The inventory file: values, parser, text.

`model` declares its keys and has the values, `parse` and `render` go between text and values. Not here: files of
other tools (`specs/importers`). Start with `model`.
"""
