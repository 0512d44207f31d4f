"""Solves Poisson's equation and a convection problem with PETSc on all ranks.

Prints the residual of each iteration with all its digits, and at the end
"petsc_solve: N iterations". Run it under mpirun with petsc4py on the path.
"""

import sys

import petsc4py

petsc4py.init(["petsc_solve"])
from petsc4py import PETSc  # noqa: E402  (needs the arguments first)

SIDE = 90  # points of the grid in each direction


def matrix(wind):
    """Five-point stencil on the unit square, with convection of this strength."""
    n = SIDE * SIDE
    a = PETSc.Mat().createAIJ([n, n], nnz=(5, 2), comm=PETSc.COMM_WORLD)
    first, end = a.getOwnershipRange()
    for row in range(first, end):
        y, x = divmod(row, SIDE)
        a[row, row] = 4.0 + wind
        if x > 0:
            a[row, row - 1] = -1.0 - wind
        if x < SIDE - 1:
            a[row, row + 1] = -1.0
        if y > 0:
            a[row, row - SIDE] = -1.0
        if y < SIDE - 1:
            a[row, row + SIDE] = -1.0
    a.assemble()
    return a


def solve(name, wind, method, preconditioner):
    """Solves, and prints the history; returns the number of iterations."""
    a = matrix(wind)
    x, b = a.createVecs()
    first, end = b.getOwnershipRange()
    for row in range(first, end):
        b[row] = 1.0 + (row % 17) / 16.0
    b.assemble()
    ksp = PETSc.KSP().create(comm=PETSc.COMM_WORLD)
    ksp.setOperators(a)
    ksp.setType(method)
    ksp.getPC().setType(preconditioner)
    ksp.setTolerances(rtol=1e-10, max_it=400)
    history = []
    ksp.setMonitor(lambda _, __, norm: history.append(norm))
    ksp.solve(b, x)
    if ksp.getConvergedReason() <= 0:
        sys.exit(f"{name}: no convergence: {ksp.getConvergedReason()}")
    sums = x.norm()
    if PETSc.COMM_WORLD.rank == 0:
        for i, norm in enumerate(history):
            print(f"residual {name} {i} {norm!r}")
        print(f"solution {name} {sums!r}")
    return len(history) - 1


done = solve("cg+bjacobi", 0.0, "cg", "bjacobi")
done += solve("gmres+asm", 0.3, "gmres", "asm")
if PETSc.COMM_WORLD.rank == 0:
    print(f"petsc_solve: {done} iterations", flush=True)
