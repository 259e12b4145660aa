"""Runs passes: the pass manager, pipelines as text, the standard ones, the ledger."""
