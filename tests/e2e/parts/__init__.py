"""The real programs that the end-to-end tests run: how each is found, got, started and stopped.

`python -m tests.e2e.parts` gets what is missing. A test asks for a part through a fixture of `tests/e2e/conftest.py`;
where the part cannot be had the test skips with the reason, and fails with it when `CI` is set.
"""
