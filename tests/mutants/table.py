"""All ways to break the product that are tried, in order."""

from tests.mutants import clients, disk, dispatching, keeping, restarting, taking_over

MUTANTS = (
    *disk.MUTANTS,
    *taking_over.MUTANTS,
    *restarting.MUTANTS,
    *dispatching.MUTANTS,
    *keeping.MUTANTS,
    *clients.MUTANTS,
)
