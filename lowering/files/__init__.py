"""Modules that anybody may have written: read without a crash, and verified before anything of them runs."""
