"""The report of a run as one HTML file: pure, from values that the client has read.

Start with page.py; run.py holds the values, charts.py chooses the plots and plot.py draws them as SVG, markup.py is
the only place that makes HTML out of text. What reads the values from the nodes is `client/history.py`.
"""
