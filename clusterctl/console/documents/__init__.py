"""What `--json` writes, declared once; `output` writes it.

The functions that make a document return these types, and the JSON Schema of a verb is made from them (`catalogue`).
Parts that lower layers make are declared there, in `plans/*/documents.py`. Of these modules only `output` is imported
at run time, and the others by `help json`.
"""
