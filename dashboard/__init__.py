"""The dashboard: what the API says of a fleet, for the person on call. Nothing in it decides."""
