"""What a dialect is made of: bindings, types, sizes, the forms of ops, and the builders that make them."""
