"""The subcommands of `mlirc`, one file each, and what they share: module files, chosen passes, failures in one line."""
