"""The loop: observe, plan, apply, record. It acts on the world through ports, and decides nothing itself."""
