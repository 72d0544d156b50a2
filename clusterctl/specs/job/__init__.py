"""The job: values (`model`, without pydantic), file format (`schema`, `hooks`), text to values (`parse`), a
new file (`render`).
"""
