"""Passes, one a file, in the folder of the stage that runs them. All folders are scanned."""
