/* Figures of an MPI library between two ranks, one line each for a program to read.
 *
 * usage: mpi_figures all [SECONDS]          every figure, SECONDS of time for each (default 0.4)
 *        mpi_figures brief [SECONDS]        latency of 8 B and bandwidth of 1 MiB
 *        mpi_figures hold SECONDS           allreduces of 8 KiB all the time: how many
 *                                    ended in each tenth of a second, and the longest one
 *        mpi_figures tail COUNT [PAUSE_US]  COUNT small allreduces, a pause after each: times only
 *
 * Lines of rank 0: "figure NAME BYTES VALUE UNIT", for tails "sample MICROSECONDS", and
 * "slot TENTHS ROUNDS" for those that hold. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 64, LARGEST = 4 << 20, SAMPLES_MAX = 1 << 20, WARM = 20, SLOTS_MAX = 6000 };

static int rank;
static double seconds = 0.4;
static char *out, *in;
static double samples[SAMPLES_MAX];

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void tell(const char *name, int bytes, double value, const char *unit)
{
    if (rank == 0) {
        printf("figure %s %d %.3f %s\n", name, bytes, value, unit);
        fflush(stdout);
    }
}

/* Microseconds at the places asked for, of the first `n` samples. */
static void spread(const char *name, int bytes, int n)
{
    static const struct { const char *word; double share; } PLACES[] = {
        { "p50", 0.5 }, { "p99", 0.99 }, { "p99.9", 0.999 },
    };
    qsort(samples, n, sizeof *samples, ascending);
    for (size_t i = 0; i < sizeof PLACES / sizeof *PLACES; i++) {
        char full[64];
        int at = (int)(PLACES[i].share * n);
        snprintf(full, sizeof full, "%s-%s", name, PLACES[i].word);
        tell(full, bytes, samples[at < n ? at : n - 1], "us");
    }
}

/* Messages under way: 64, fewer if they are large. */
static int window_of(int bytes)
{
    return bytes <= 65536 ? WINDOW : (8 << 20) / bytes;
}

/* Warms up; how many rounds take about a tenth of the time, the same number in both ranks. */
static int batch_of(void (*round)(int), int bytes)
{
    double one = 1e9;
    for (int i = 0; i < 4; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime(), took;
        round(bytes);
        took = MPI_Wtime() - began;
        one = took < one ? took : one;
    }
    int n = one > 0 && seconds / one < SAMPLES_MAX ? (int)(seconds / one / 10) : 1;
    n = n < 1 ? 1 : n;
    MPI_Bcast(&n, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++)
        round(bytes);
    return n;
}

/* Rank 0 says whether there is time for another batch. */
static int go_on(double start)
{
    int go = MPI_Wtime() - start < seconds;
    MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    return go;
}

/* There and back. */
static void ping(int bytes)
{
    if (rank == 0) {
        MPI_Send(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(in, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(in, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(out, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
}

/* A window of messages one way, and a short one back. */
static void one_way(int bytes)
{
    MPI_Request all[WINDOW];
    int window = window_of(bytes);
    for (int i = 0; i < window; i++) {
        if (rank == 0)
            MPI_Isend(out, bytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &all[i]);
        else
            MPI_Irecv(in, bytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &all[i]);
    }
    MPI_Waitall(window, all, MPI_STATUSES_IGNORE);
    if (rank == 0)
        MPI_Recv(in, 1, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(out, 1, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
}

/* A window each way at once. */
static void both_ways(int bytes)
{
    MPI_Request all[2 * WINDOW];
    int window = window_of(bytes);
    for (int i = 0; i < window; i++)
        MPI_Irecv(in, bytes, MPI_BYTE, 1 - rank, 4, MPI_COMM_WORLD, &all[i]);
    for (int i = 0; i < window; i++)
        MPI_Isend(out, bytes, MPI_BYTE, 1 - rank, 4, MPI_COMM_WORLD, &all[window + i]);
    MPI_Waitall(2 * window, all, MPI_STATUSES_IGNORE);
}

static void sum(int bytes)
{
    MPI_Allreduce(out, in, bytes / (int)sizeof(double), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

/* Times of single rounds; `share` is 0.5 where a round is there and back. */
static void times(const char *name, void (*round)(int), int bytes, double share)
{
    int batch = batch_of(round, bytes), n = 0;
    double start = MPI_Wtime();
    while (go_on(start) && n + batch <= SAMPLES_MAX) {
        for (int i = 0; i < batch; i++) {
            double began = MPI_Wtime();
            round(bytes);
            samples[n++] = (MPI_Wtime() - began) * 1e6 * share;
        }
    }
    spread(name, bytes, n);
}

/* Messages per second of all rounds together, `ways` directions counted. */
static double rate(void (*round)(int), int bytes, int ways)
{
    int window = window_of(bytes);
    int batch = batch_of(round, bytes);
    double start = MPI_Wtime(), spent = 0, n = 0;
    while (go_on(start)) {
        double began = MPI_Wtime();
        for (int i = 0; i < batch; i++)
            round(bytes);
        spent += MPI_Wtime() - began;
        n += batch;
    }
    return n * window * ways / spent;
}

static void all_figures(void)
{
    static const int PINGS[] = { 8, 1024, 8192, 65536, 1 << 20 };
    static const int FLOWS[] = { 8192, 65536, 1 << 20, LARGEST };
    static const int SUMS[] = { 8, 8192, 1 << 20 };
    for (size_t i = 0; i < sizeof PINGS / sizeof *PINGS; i++)
        times("latency", ping, PINGS[i], 0.5);
    for (size_t i = 0; i < sizeof FLOWS / sizeof *FLOWS; i++)
        tell("bandwidth", FLOWS[i], rate(one_way, FLOWS[i], 1) * FLOWS[i] / 1e6, "MB/s");
    for (size_t i = 0; i < sizeof FLOWS / sizeof *FLOWS; i++)
        tell("bi-bandwidth", FLOWS[i], rate(both_ways, FLOWS[i], 2) * FLOWS[i] / 1e6, "MB/s");
    tell("message-rate", 8, rate(one_way, 8, 1) / 1e3, "k/s");
    for (size_t i = 0; i < sizeof SUMS / sizeof *SUMS; i++)
        times("allreduce", sum, SUMS[i], 1);
}

static void brief(void)
{
    times("latency", ping, 8, 0.5);
    tell("bandwidth", 1 << 20, rate(one_way, 1 << 20, 1) * (1 << 20) / 1e6, "MB/s");
}

/* Rank 0 says when it is enough. */
static void hold(double whole)
{
    static long slots[SLOTS_MAX];
    double longest = 0, start = MPI_Wtime(), last = start;
    long n = 0;
    int go = 1;
    tell("began", 8192, 0, "s");
    while (go) {
        sum(8192);
        double now = MPI_Wtime() - start;
        go = now < whole;
        /* Its time counts, too: a broadcast ends when its message has been acknowledged. */
        MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
        double end = MPI_Wtime();
        longest = end - last > longest ? end - last : longest;
        last = end;
        n++;
        int slot = (int)((end - start) * 10);
        slots[slot < SLOTS_MAX ? slot : SLOTS_MAX - 1]++;
    }
    if (rank == 0)
        for (int i = 0; i < SLOTS_MAX && i < whole * 10; i++)
            printf("slot %d %ld\n", i, slots[i]);
    tell("rounds", 8192, n, "");
    tell("longest", 8192, longest * 1e3, "ms");
}

/* Every time is printed, so that runs can be put together. */
static void tail(int count, double pause_us)
{
    if (count > SAMPLES_MAX)
        count = SAMPLES_MAX;
    for (int i = 0; i < WARM; i++)
        sum(8);
    for (int i = 0; i < count; i++) {
        double began = MPI_Wtime();
        sum(8);
        samples[i] = (MPI_Wtime() - began) * 1e6;
        while ((MPI_Wtime() - began) * 1e6 < samples[i] + pause_us)
            ;
    }
    if (rank == 0)
        for (int i = 0; i < count; i++)
            printf("sample %.1f\n", samples[i]);
}

int main(int argc, char **argv)
{
    int ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    out = calloc(1, LARGEST);
    in = calloc(1, LARGEST);
    if (ranks != 2 || argc < 2 || !out || !in) {
        fprintf(stderr, "usage: mpirun -n 2 mpi_figures all|brief|hold [SECONDS] | "
                        "tail COUNT [PAUSE_US]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (strcmp(argv[1], "tail") == 0) {
        tail(argc > 2 ? atoi(argv[2]) : 1000, argc > 3 ? atof(argv[3]) : 0);
    } else {
        if (argc > 2)
            seconds = atof(argv[2]);
        if (strcmp(argv[1], "hold") == 0)
            hold(seconds);
        else if (strcmp(argv[1], "brief") == 0)
            brief();
        else
            all_figures();
    }
    MPI_Finalize();
    return 0;
}
