"""A fleet of engines on one virtual clock: routers, start-up, draining, and what metrics and platforms show of it.

Compiled between the events that a driver makes (ticks, scrapes, starts); the driver may take a copy and go back to it.
"""
