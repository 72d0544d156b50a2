"""The inventory file: values and parser.

`model` declares its keys and has the values, `parse` reads text. Not here: files of other tools
(`specs/importers`), new files (`specs/render`). Start with `model`.
"""
