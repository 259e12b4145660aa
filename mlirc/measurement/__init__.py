"""Measures what the compiler makes: alternating samples, confidence intervals, error against float64, and the calls that are measured."""
