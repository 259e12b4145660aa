"""Performance measures: what is done for the speed or memory of calls alone, beside compiling. Nothing else depends on them."""
