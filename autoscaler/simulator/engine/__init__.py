"""The engine model: one LLM server with many LoRA adapters, step by step, on a virtual clock.

Decides nothing about fleets. It knows what a batch is, what a step costs and which adapters are in memory; routers,
replicas, HTTP and real time lie outside.
"""
