"""Ways to run a fleet of many LoRA adapters, to compare: those of the field, ours by its own controller, a bound."""
