"""What a kernel loads and stores, checked lane by lane.

In: pointers. Out: values, and what the observer is told: accesses out of bounds, races between programs.

    access   loads and stores, with bounds checked
    atomics  atomic operations, in the order of the programs
    tiles    block pointers and tensor descriptors
    races    which program touched what, and whether the order of programs matters
    journal  changes that can be taken back
"""
