/* Small exchanges of many ranks: rounds per second, and how long rounds take.
 *
 * usage: mpi_small [SECONDS [KIND]]
 * KIND: `ring` (8 B to 1 KiB with the two next ranks and the two before), `all` (as much from each
 * rank to each), or both in each round (the default). Rank 0 prints one line. The time of a round
 * is that of its slowest rank. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { LARGEST = 1024, ROUNDS_MAX = 2000000, LOOK_EVERY = 16 };

/* Seconds of a processor that this process has used. */
static double used(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return r.ru_utime.tv_sec + r.ru_stime.tv_sec + 1e-6 * (r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* What this rank sends to the one `distance` places on, and gets from the one as far back. */
static void shift(int distance, int rank, int ranks, char *out, char *in, int len)
{
    int to = (rank + distance + ranks) % ranks, from = (rank - distance + ranks) % ranks;
    MPI_Sendrecv(out, len, MPI_BYTE, to, 5, in, len, MPI_BYTE, from, 5, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

static void print(float *took, long rounds, double all, double cpu)
{
    long stalls = 0;
    for (long i = 0; i < rounds; i++)
        stalls += took[i] >= 50e-3f;
    qsort(took, rounds, sizeof *took, compare);
    printf("mpi_small: %.0f rounds/s, p50 %.3f p99 %.2f p99.9 %.2f longest %.2f ms, "
           "%ld of %ld took 50 ms or more, %.0f us of processors each\n",
           rounds / all, 1e3 * took[rounds / 2], 1e3 * took[rounds * 99 / 100],
           1e3 * took[rounds * 999 / 1000], 1e3 * took[rounds - 1], stalls, rounds,
           1e6 * cpu / rounds);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 2, cpu, sum;
    const char *kind = argc > 2 ? argv[2] : "both";
    int rank, ranks, more = 1;
    long rounds = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    char *out = calloc(ranks, LARGEST), *in = calloc(ranks, LARGEST);
    float *took = malloc(sizeof *took * ROUNDS_MAX), *slowest = malloc(sizeof *took * ROUNDS_MAX);
    if (!out || !in || !took || !slowest)
        MPI_Abort(MPI_COMM_WORLD, 3);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    cpu = used();
    for (; more && rounds < ROUNDS_MAX; rounds++) {
        double began = MPI_Wtime();
        int len = 8 << rounds % 8;
        for (int d = 1; d <= 2 && strcmp(kind, "all"); d++) {
            shift(d, rank, ranks, out, in, len);
            shift(-d, rank, ranks, out, in, len);
        }
        if (strcmp(kind, "ring"))
            MPI_Alltoall(out, len, MPI_BYTE, in, len, MPI_BYTE, MPI_COMM_WORLD);
        if (rounds % LOOK_EVERY == LOOK_EVERY - 1) {
            int mine = MPI_Wtime() - start < seconds;
            MPI_Allreduce(&mine, &more, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        }
        took[rounds] = MPI_Wtime() - began;
    }
    double all = MPI_Wtime() - start;
    cpu = used() - cpu;
    MPI_Reduce(&cpu, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(took, slowest, rounds, MPI_FLOAT, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        print(slowest, rounds, all, sum);
    MPI_Finalize();
    return 0;
}
