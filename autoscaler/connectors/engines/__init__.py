"""Engines' adapter endpoints: loads, unloads and lists, in the engines' own dialects, and a ledger of what was done.

The room never decides what should be where. It keeps the promise that adapters which this controller did not load are
not unloaded, and hands on the engines' own words.
"""
