"""The report of a run as one HTML file: pure, from values that the client has read.

Start with `page`; `reported_run` holds the values, `charts` chooses the plots and `plot` draws them as SVG, `markup`
is the only place that makes HTML out of text. What reads the values from the nodes is `client/run_evidence`.
"""
