"""Log files of a run: read (`reader`), lines, index by time, what to do with long ones, what each rank wrote
last (`activity`).
"""
