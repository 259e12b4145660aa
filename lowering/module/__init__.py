"""What is asked of any module: its form, its functions, where an op came from, what is wrong with it."""
