"""What an operator wants of a fleet: policy files become a frozen `FleetPolicy`, or the full list of what is wrong.

The dataclass tree (`model`, `groups`, `steps`) is the schema: each field carries its kind, bounds, default and meaning,
and one walk over it yields validation, defaults, JSON Schema and the reference page. What no single key can be blamed
for is in `rules`. The room takes texts and file names; it opens no file, and knows nothing of engines or platforms.

Doors: `loading.parse_policy` and `parse_policies`, `catalogue.parse_catalogue`, `differences.diff`, `schedules.active`,
and `exports` (YAML, JSON Schema, the documented default file, the reference page). None of them raises for bad input.
"""
