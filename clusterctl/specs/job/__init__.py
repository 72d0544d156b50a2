"""The job file: values, parser, text.

`model` declares its keys and has the values, `parse` reads text, `render` writes a new file. Not here: command lines
(`plans/launch`). Start with `model`.
"""
