"""Models compiled ahead of time: `mlirc.compile` (compile.py), and the files that `mlirc.load` runs without tracing (package_file.py)."""
