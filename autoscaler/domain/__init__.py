"""The words of the product as frozen values: what is observed, what is decided, and why.

This room decides nothing and touches nothing: the standard library and numpy only. Where there are many (adapters,
tenants), a value holds columns (arrays of one length); where there are few (replicas, groups), it holds objects.
"""
