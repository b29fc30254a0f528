"""Small models that come along, for short everyday sentences; the card of each says what it learned from."""
