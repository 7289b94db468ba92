"""What an operator wants of a fleet: policy files become a frozen `FleetPolicy`, or the full list of what is wrong.

The dataclass tree (`model`, `groups`, `steps`) is the schema: each field carries its kind, bounds, default
and meaning, and one walk over it yields validation, defaults, JSON Schema and the reference page. The room takes texts
and file names; it never opens a file, and it knows nothing of engines, platforms or time beyond what a policy says.
"""
