"""Kubernetes: replicas, groups, leadership, ring and checkpoints in a cluster. Its objects never leave this package."""
