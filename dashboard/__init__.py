"""The dashboard: what the API says of a fleet, for the person on call. It decides nothing and holds no state of its own."""
