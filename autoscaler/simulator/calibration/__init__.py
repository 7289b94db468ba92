"""Where engine profiles come from: fits to measured servers, to kernel tables, and to a user's own replicas.

It decides no policy and simulates no fleet; it reads measurements, fits the parameters of `engine.profile`, replays
measured runs through the engine model, and says how far off it is.
"""
