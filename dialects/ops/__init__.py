"""Ops, in folders by kind; all are scanned."""
