"""Autoscaler and tiering service for fleets of LLM replicas that serve many LoRA adapters."""
