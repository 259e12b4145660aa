"""The memory plan: the arena, copies, updates in place."""
