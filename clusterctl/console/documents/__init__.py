"""What `--json` writes, declared once; `output` writes it.

The functions that make a document return these types, and the JSON Schema of a verb is made from them (`schema`).
Parts that lower layers make are declared there, in `plans/runs/documents.py`. Of these modules only `output` is
imported at run time, and the others by `help json`.
"""
