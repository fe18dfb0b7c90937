"""The source paper's tables and figures: defined by small files, computed once, shown in many ways.

A definition (``paper/*.toml``) names graphs, numbers of clients, methods, scores and levels. The
cells of all definitions form one grid; a store keeps what was computed, and a target is a view of
its rows beside the published numbers.
"""
