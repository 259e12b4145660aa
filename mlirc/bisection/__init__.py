"""From a failure to its cause: the pass, the rewrite, the smallest IR that shows it."""
