"""Models compiled ahead of time: `mlirc.compile`, and files that load without tracing. compile.py, package_file.py."""
