"""The option compile_seconds: ATen runs a graph while its best code is made in the background."""
