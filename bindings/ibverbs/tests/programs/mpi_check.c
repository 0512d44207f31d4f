/* Checks what an MPI library delivers: messages of many sizes byte by byte, any-source, probe,
 * persistent and truncated ones, the usual collectives, one-sided access.
 *
 * usage: mpi_check [LARGEST_BYTES [SECONDS]]
 * Ends with a line "mpi_check: N checks, 0 wrong" from rank 0; exit code 1 if anything was wrong.
 * With SECONDS it goes on with messages and reductions for that long and reports the longest time
 * that one round took. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;
static long checks, wrong;

static void check(int good, const char *what, long detail)
{
    checks++;
    if (!good) {
        wrong++;
        fprintf(stderr, "mpi_check: rank %d: %s (%ld) is wrong\n", rank, what, detail);
    }
}

/* The byte at place i of message `seed`. */
static unsigned char pattern(long i, long seed)
{
    unsigned long x = (unsigned long)i * 2654435761u + (unsigned long)seed * 40503u;
    return (unsigned char)(x >> 16 ^ x >> 5);
}

static void fill(unsigned char *bytes, long n, long seed)
{
    for (long i = 0; i < n; i++)
        bytes[i] = pattern(i, seed);
}

static int same(const unsigned char *bytes, long n, long seed)
{
    for (long i = 0; i < n; i++)
        if (bytes[i] != pattern(i, seed))
            return 0;
    return 1;
}

static void *room(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p)
        MPI_Abort(MPI_COMM_WORLD, 3);
    return p;
}

/* Each rank sends to the next one and receives from the one before. */
static void ring(long largest)
{
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    unsigned char *out = room(largest), *in = room(largest);
    for (long n = 0; n <= largest; n = n ? n * 2 : 1) {
        for (int more = -1; more <= 1; more++) {
            long len = n + more;
            if (len < 0 || len > largest)
                continue;
            MPI_Status status;
            int got = -1;
            fill(out, len, rank + len);
            memset(in, 0, len);
            MPI_Sendrecv(out, len, MPI_BYTE, next, 7, in, len, MPI_BYTE, before, 7,
                         MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_BYTE, &got);
            check(got == len && same(in, len, before + len), "sendrecv", len);
        }
    }
    free(out);
    free(in);
}

/* Rank 0 takes messages of everybody as they come; probe tells length and source first. */
static void any_source(void)
{
    enum { EACH = 50 };
    if (rank != 0) {
        for (int i = 0; i < EACH; i++) {
            long len = (rank * 1000 + i * 37) % 20000;
            unsigned char *bytes = room(len);
            fill(bytes, len, rank * 100 + i);
            MPI_Send(bytes, len, MPI_BYTE, 0, i, MPI_COMM_WORLD);
            free(bytes);
        }
        return;
    }
    int *seen = room(sizeof(int) * ranks);
    memset(seen, 0, sizeof(int) * ranks);
    for (int i = 0; i < EACH * (ranks - 1); i++) {
        MPI_Status status;
        int len;
        MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &len);
        unsigned char *bytes = room(len);
        MPI_Recv(bytes, len, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
        int from = status.MPI_SOURCE, tag = status.MPI_TAG;
        check(len == (from * 1000 + tag * 37) % 20000 && same(bytes, len, from * 100 + tag),
              "any source", from * 1000 + tag);
        check(tag == seen[from]++, "order of one sender", tag);
        free(bytes);
    }
    free(seen);
}

static void persistent(void)
{
    enum { N = 30000, ROUNDS = 20 };
    unsigned char *out = room(N), *in = room(N);
    MPI_Request requests[2];
    MPI_Recv_init(in, N, MPI_BYTE, (rank + ranks - 1) % ranks, 9, MPI_COMM_WORLD, &requests[0]);
    MPI_Send_init(out, N, MPI_BYTE, (rank + 1) % ranks, 9, MPI_COMM_WORLD, &requests[1]);
    for (int i = 0; i < ROUNDS; i++) {
        fill(out, N, rank * 31 + i);
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        check(same(in, N, (rank + ranks - 1) % ranks * 31 + i), "persistent", i);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    free(out);
    free(in);
}

/* A message longer than the receive is an error of the receive, and of nothing else. */
static void truncated(void)
{
    int got, class = MPI_SUCCESS;
    unsigned char big[4096] = {0}, small[16];
    if (ranks < 2 || rank > 1)
        return;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 0) {
        MPI_Send(big, sizeof big, MPI_BYTE, 1, 11, MPI_COMM_WORLD);
    } else {
        int code = MPI_Recv(small, sizeof small, MPI_BYTE, 0, 11, MPI_COMM_WORLD,
                            MPI_STATUS_IGNORE);
        MPI_Error_class(code, &class);
        check(class == MPI_ERR_TRUNCATE, "truncation", class);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    got = rank;
    MPI_Sendrecv_replace(&got, 1, MPI_INT, 1 - rank, 12, 1 - rank, 12, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
    check(got == 1 - rank, "message after truncation", got);
}

static void collectives(int n)
{
    int *mine = room(sizeof(int) * n), *all = room(sizeof(int) * n * ranks);
    int *sum = room(sizeof(int) * n), good;
    for (int i = 0; i < n; i++)
        mine[i] = rank * 1000 + i;
    MPI_Allreduce(mine, sum, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    good = 1;
    for (int i = 0; i < n; i++)
        good &= sum[i] == 1000 * (ranks * (ranks - 1) / 2) + ranks * i;
    check(good, "allreduce", n);
    MPI_Allgather(mine, n, MPI_INT, all, n, MPI_INT, MPI_COMM_WORLD);
    good = 1;
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < n; i++)
            good &= all[r * n + i] == r * 1000 + i;
    check(good, "allgather", n);
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < n; i++)
            all[r * n + i] = rank * 100 + r + i;
    int *got = room(sizeof(int) * n * ranks);
    MPI_Alltoall(all, n, MPI_INT, got, n, MPI_INT, MPI_COMM_WORLD);
    good = 1;
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < n; i++)
            good &= got[r * n + i] == r * 100 + rank + i;
    check(good, "alltoall", n);
    for (int root = 0; root < ranks; root++) {
        for (int i = 0; i < n; i++)
            sum[i] = rank == root ? root * 7 + i : -1;
        MPI_Bcast(sum, n, MPI_INT, root, MPI_COMM_WORLD);
        good = 1;
        for (int i = 0; i < n; i++)
            good &= sum[i] == root * 7 + i;
        check(good, "bcast", root);
        MPI_Reduce(mine, sum, n, MPI_INT, MPI_MAX, root, MPI_COMM_WORLD);
        check(rank != root || sum[n - 1] == (ranks - 1) * 1000 + n - 1, "reduce", root);
        MPI_Scatter(all, n, MPI_INT, sum, n, MPI_INT, root, MPI_COMM_WORLD);
        check(sum[0] == root * 100 + rank, "scatter", root);
        MPI_Gather(mine, n, MPI_INT, got, n, MPI_INT, root, MPI_COMM_WORLD);
        check(rank != root || got[(ranks - 1) * n] == (ranks - 1) * 1000, "gather", root);
    }
    MPI_Scan(mine, sum, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check(sum[0] == 1000 * (rank * (rank + 1) / 2), "scan", n);
    MPI_Barrier(MPI_COMM_WORLD);
    free(mine);
    free(all);
    free(sum);
    free(got);
}

static void one_sided(void)
{
    enum { N = 5000 };
    long *window, *local = room(sizeof(long) * N), good = 1;
    MPI_Win win;
    MPI_Win_allocate(sizeof(long) * N, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
    for (int i = 0; i < N; i++)
        window[i] = -1;
    MPI_Win_fence(0, win);
    for (int i = 0; i < N; i++)
        local[i] = rank * 100000L + i;
    MPI_Put(local, N, MPI_LONG, (rank + 1) % ranks, 0, N, MPI_LONG, win);
    MPI_Win_fence(0, win);
    long before = (rank + ranks - 1) % ranks;
    for (int i = 0; i < N; i++)
        good &= window[i] == before * 100000L + i;
    check(good, "put", N);
    MPI_Get(local, N, MPI_LONG, (rank + 1) % ranks, 0, N, MPI_LONG, win);
    MPI_Win_fence(0, win);
    good = 1;
    for (int i = 0; i < N; i++)
        good &= local[i] == rank * 100000L + i;
    check(good, "get", N);
    long one = 1;
    window[0] = 0;
    MPI_Win_fence(0, win);
    MPI_Accumulate(&one, 1, MPI_LONG, 0, 0, 1, MPI_LONG, MPI_SUM, win);
    MPI_Win_fence(0, win);
    check(rank != 0 || window[0] == ranks, "accumulate", window[0]);
    MPI_Win_free(&win);
    free(local);
}

/* Rounds of messages and reductions until the time is up. */
static void go_on(double seconds)
{
    enum { N = 20000 };
    unsigned char *out = room(N), *in = room(N);
    double start = MPI_Wtime(), worst = 0;
    long rounds = 0;
    int more = 1;
    while (more) {
        double began = MPI_Wtime();
        int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
        long len = rounds * 977 % N;
        fill(out, len, rank + rounds);
        MPI_Sendrecv(out, len, MPI_BYTE, next, 5, in, len, MPI_BYTE, before, 5, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        check(same(in, len, before + rounds), "round", rounds);
        int mine = MPI_Wtime() - start < seconds;
        MPI_Allreduce(&mine, &more, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        double took = MPI_Wtime() - began;
        worst = took > worst ? took : worst;
        rounds++;
    }
    double longest;
    MPI_Reduce(&worst, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("mpi_check: %ld rounds, the longest took %.1f ms\n", rounds, longest * 1e3);
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    long largest = argc > 1 ? atol(argv[1]) : 1 << 20;
    double seconds = argc > 2 ? atof(argv[2]) : 0;
    long sums[2], mine[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    ring(largest);
    any_source();
    /* Or the messages that follow could be taken for those of any source. */
    MPI_Barrier(MPI_COMM_WORLD);
    persistent();
    truncated();
    collectives(1);
    collectives(3000);
    one_sided();
    if (seconds > 0)
        go_on(seconds);
    mine[0] = checks;
    mine[1] = wrong;
    MPI_Allreduce(mine, sums, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("mpi_check: %ld checks, %ld wrong\n", sums[0], sums[1]);
    MPI_Finalize();
    return sums[1] != 0;
}
