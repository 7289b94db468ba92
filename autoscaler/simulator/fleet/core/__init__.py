"""The fleet's compiled part, in a folder of its own: machine code is kept by the digest of a folder's sources."""
