"""What verbs need around their work: inventory and job files (`load`), the job's code (`code`), connections
and exit codes (`nodes`), bug reports (`crash`).
"""
