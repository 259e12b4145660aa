"""The oracle: executes the dialect in any form with plain torch."""
