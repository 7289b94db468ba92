"""What operators keep in files: policies and catalogues, read again when they change; an invalid one keeps the old."""
