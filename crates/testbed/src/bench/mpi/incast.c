/* Incast with MPI_Send: the last ranks send one message each to the first ranks, after a barrier.
 *
 * usage: mpi_incast RECEIVERS ROUNDS BYTES...
 *
 * Sender number s (rank RECEIVERS + s) sends to rank s % RECEIVERS. For every size there is one
 * round more than ROUNDS, the first of which opens connections and is numbered 0. Rank 0 prints
 *     flow BYTES ROUND SENDER START_NS END_NS
 * with the times of the machine's monotonic clock, which all ranks share because all hosts are
 * namespaces of one machine: when the sender called MPI_Send, and when its message was complete at
 * the receiver. Each message is checked; the last line is "damaged COUNT". */
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The next word of a message's content (xorshift). */
static uint64_t step(uint64_t word)
{
    word ^= word << 13;
    word ^= word >> 7;
    return word ^ word << 17;
}

static uint64_t seed(int sender, int round, int bytes)
{
    return ((uint64_t)sender << 40 | (uint64_t)round << 32 | (uint32_t)bytes) * 2654435761u + 1;
}

/* Writes, or compares if `check`, the content of a message; whether it is equal. */
static int content(char *at, int sender, int round, int bytes, int check)
{
    uint64_t word = seed(sender, round, bytes);
    for (int i = 0; i < bytes; i += 8) {
        int n = bytes - i < 8 ? bytes - i : 8;
        word = step(word);
        if (!check)
            memcpy(at + i, &word, n);
        else if (memcmp(at + i, &word, n))
            return 0;
    }
    return 1;
}

static void fail(const char *why)
{
    fprintf(stderr, "mpi_incast: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

int main(int argc, char **argv)
{
    int rank, ranks, damaged = 0, all_damaged = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 4)
        fail("usage: mpi_incast RECEIVERS ROUNDS BYTES...");
    int receivers = atoi(argv[1]), rounds = atoi(argv[2]), senders = ranks - receivers;
    if (receivers < 1 || senders < receivers || rounds < 1)
        fail("there must be at least as many senders as receivers, and a round");
    int sends = rank >= receivers, me = rank - receivers, largest = 0;
    for (int a = 3; a < argc; a++)
        largest = atoi(argv[a]) > largest ? atoi(argv[a]) : largest;
    /* The senders of this receiver are numbers rank, rank + receivers, and so on. */
    int mine = sends ? 1 : (senders - rank + receivers - 1) / receivers;
    char *memory = malloc((size_t)mine * (largest ? largest : 1));
    MPI_Request *open = malloc(mine * sizeof *open);
    int64_t *times = malloc(4 * senders * sizeof *times), *all = times + 2 * senders;
    if (!memory || !open || !times)
        fail("not enough memory");
    /* Touched before the first round, so that page faults are not measured. */
    memset(memory, 1, (size_t)mine * (largest ? largest : 1));

    for (int a = 3; a < argc; a++) {
        int bytes = atoi(argv[a]);
        if (bytes < 1)
            fail("a message has at least one byte");
        for (int round = 0; round <= rounds; round++) {
            memset(times, 0, 2 * senders * sizeof *times);
            if (sends)
                content(memory, me, round, bytes, 0);
            for (int i = 0; !sends && i < mine; i++)
                MPI_Irecv(memory + (size_t)i * bytes, bytes, MPI_BYTE,
                          receivers + rank + i * receivers, a, MPI_COMM_WORLD, &open[i]);
            MPI_Barrier(MPI_COMM_WORLD);
            if (sends) {
                times[2 * me] = now_ns();
                MPI_Send(memory, bytes, MPI_BYTE, me % receivers, a, MPI_COMM_WORLD);
            }
            for (int done = 0; !sends && done < mine; done++) {
                int i;
                MPI_Waitany(mine, open, &i, MPI_STATUS_IGNORE);
                times[2 * (rank + i * receivers) + 1] = now_ns();
            }
            for (int i = 0; !sends && i < mine; i++)
                damaged += !content(memory + (size_t)i * bytes, rank + i * receivers, round,
                                    bytes, 1);
            /* Each time is known to one rank, and 0 at all others. */
            MPI_Reduce(times, all, 2 * senders, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
            for (int s = 0; rank == 0 && s < senders; s++)
                printf("flow %d %d %d %" PRId64 " %" PRId64 "\n", bytes, round, s, all[2 * s],
                       all[2 * s + 1]);
            /* So that the rounds before a time limit are known. */
            fflush(stdout);
        }
    }
    MPI_Reduce(&damaged, &all_damaged, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("damaged %d\n", all_damaged);
    MPI_Finalize();
    return 0;
}
