"""The job file: values and parser.

`model` declares its keys and has the values, `parse` reads text. Not here: new files (`specs/render`), command lines
(`plans/launch`). Start with `model`.
"""
