"""The inventory: values (`model`, without pydantic), file format (`schema`), text to values (`parse`) and back
(`render`).
"""
