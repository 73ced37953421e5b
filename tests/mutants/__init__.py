"""Ways to break the product, each with the tests that see it: a command applies one at a time to a copy of the checkout
and runs them. ``python -m tests.mutants --help`` says how."""
