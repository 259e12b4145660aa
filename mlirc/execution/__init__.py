"""Executes modules of any form for the commands: captures, inputs, the interpreter or machine code, what is compared after each pass."""
