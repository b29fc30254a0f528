"""A translator for others, over HTTP: LibreTranslate's contract, and what a look inside needs."""
