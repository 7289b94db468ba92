"""What operators keep in files, read again when it changes; while the new is invalid the old stands."""
