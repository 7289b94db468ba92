"""What must outlive the process, in one SQLite file; and the lease of a single machine.

Nothing that a call has returned for is lost: commits are on disk before the call returns, also when the process is
killed the moment after.
"""
