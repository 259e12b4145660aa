"""What `mlirc opt` shows beside its result: IR between passes, statistics, expected errors, what fusions gain."""
