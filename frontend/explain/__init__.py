"""`mlirc.explain`: calls a function once, undoes what that changed, and says what was done with it."""
