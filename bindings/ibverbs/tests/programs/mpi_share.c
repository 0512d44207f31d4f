/* A library to preload into MPI programs: measures the time that they spend inside of MPI, by MPI's
 * profiling interface. At the end, rank 0 prints
 *
 *   mpi_share: R ranks, W s between start and end, P % in MPI, the longest call took L ms
 *
 * W is the time of rank 0, P the mean over ranks, L the longest call of any rank between the end of
 * MPI_Init and MPI_Finalize. Calls that return at once (MPI_Isend, MPI_Test) count, too. */

#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#include <stdio.h>
#include <time.h>

static double began, inside, longest;
static int depth;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The time of a call within another one is that of the outer call. */
#define TIMED(call)                                  \
	do {                                         \
		double since = depth++ == 0 ? now() : 0.0; \
		int err = (call);                    \
		if (--depth == 0) {                  \
			double took = now() - since; \
			inside += took;              \
			if (took > longest)          \
				longest = took;      \
		}                                    \
		return err;                          \
	} while (0)

int MPI_Init(int *argc, char ***argv)
{
	int err = PMPI_Init(argc, argv);
	began = now();
	return err;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
	int err = PMPI_Init_thread(argc, argv, required, provided);
	began = now();
	return err;
}

int MPI_Finalize(void)
{
	double all = now() - began, share = all > 0 ? inside / all : 0.0;
	double sum = 0.0, most = 0.0;
	int rank = 0, ranks = 1;
	PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
	PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
	PMPI_Reduce(&share, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	PMPI_Reduce(&longest, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	if (rank == 0) {
		printf("mpi_share: %d ranks, %.3f s between start and end, %.1f %% in MPI, "
		       "the longest call took %.1f ms\n",
		       ranks, all, 100.0 * sum / ranks, 1e3 * most);
		fflush(stdout);
	}
	return PMPI_Finalize();
}

int MPI_Send(const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c)
{
	TIMED(PMPI_Send(b, n, t, to, tag, c));
}

int MPI_Bsend(const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c)
{
	TIMED(PMPI_Bsend(b, n, t, to, tag, c));
}

int MPI_Isend(const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request *r)
{
	TIMED(PMPI_Isend(b, n, t, to, tag, c, r));
}

int MPI_Recv(void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Status *s)
{
	TIMED(PMPI_Recv(b, n, t, from, tag, c, s));
}

int MPI_Irecv(void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Request *r)
{
	TIMED(PMPI_Irecv(b, n, t, from, tag, c, r));
}

int MPI_Sendrecv(const void *b, int n, MPI_Datatype t, int to, int tag, void *rb, int rn,
		 MPI_Datatype rt, int from, int rtag, MPI_Comm c, MPI_Status *s)
{
	TIMED(PMPI_Sendrecv(b, n, t, to, tag, rb, rn, rt, from, rtag, c, s));
}

int MPI_Probe(int from, int tag, MPI_Comm c, MPI_Status *s)
{
	TIMED(PMPI_Probe(from, tag, c, s));
}

int MPI_Wait(MPI_Request *r, MPI_Status *s)
{
	TIMED(PMPI_Wait(r, s));
}

int MPI_Waitall(int n, MPI_Request r[], MPI_Status s[])
{
	TIMED(PMPI_Waitall(n, r, s));
}

int MPI_Waitany(int n, MPI_Request r[], int *which, MPI_Status *s)
{
	TIMED(PMPI_Waitany(n, r, which, s));
}

int MPI_Test(MPI_Request *r, int *done, MPI_Status *s)
{
	TIMED(PMPI_Test(r, done, s));
}

int MPI_Barrier(MPI_Comm c)
{
	TIMED(PMPI_Barrier(c));
}

int MPI_Bcast(void *b, int n, MPI_Datatype t, int root, MPI_Comm c)
{
	TIMED(PMPI_Bcast(b, n, t, root, c));
}

int MPI_Reduce(const void *b, void *rb, int n, MPI_Datatype t, MPI_Op op, int root, MPI_Comm c)
{
	TIMED(PMPI_Reduce(b, rb, n, t, op, root, c));
}

int MPI_Allreduce(const void *b, void *rb, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c)
{
	TIMED(PMPI_Allreduce(b, rb, n, t, op, c));
}

int MPI_Gather(const void *b, int n, MPI_Datatype t, void *rb, int rn, MPI_Datatype rt, int root,
	       MPI_Comm c)
{
	TIMED(PMPI_Gather(b, n, t, rb, rn, rt, root, c));
}

int MPI_Allgather(const void *b, int n, MPI_Datatype t, void *rb, int rn, MPI_Datatype rt,
		  MPI_Comm c)
{
	TIMED(PMPI_Allgather(b, n, t, rb, rn, rt, c));
}

int MPI_Alltoall(const void *b, int n, MPI_Datatype t, void *rb, int rn, MPI_Datatype rt,
		 MPI_Comm c)
{
	TIMED(PMPI_Alltoall(b, n, t, rb, rn, rt, c));
}

int MPI_Alltoallv(const void *b, const int n[], const int d[], MPI_Datatype t, void *rb,
		  const int rn[], const int rd[], MPI_Datatype rt, MPI_Comm c)
{
	TIMED(PMPI_Alltoallv(b, n, d, t, rb, rn, rd, rt, c));
}
