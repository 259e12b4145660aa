"""The disk cache: its folder, its entries, what a key holds."""
