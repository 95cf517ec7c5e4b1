/* Times a collective of MPI: `mpi_collective [--rounds N] [--late-ms MS] [--compute-ms MS] [--at-once K | --in-turn K]
 * [reduce|allreduce|broadcast] SIZE...` calls it for each size in bytes and prints a line "SIZE NANOSECONDS" for each of N
 * rounds. The root of a rooted one is rank 0. The time is that of the rank that gets its result last, from its own call
 * just after a barrier, after two rounds that are not counted. The result is verified on every rank that gets one.
 * Elements are floats, or doubles with -DDOUBLES.
 *
 * With --late-ms rank 4 calls so much later than the others, and the time begins when it calls. With --at-once a round
 * is of K calls that do not block, on communicators of their own, and with --in-turn of K calls that do, one after the
 * other; the time is that of all. With --compute-ms each rank computes for so long after its calls, and waits then for
 * those that do not block: with --at-once 1 for the one. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef DOUBLES
typedef double element;
#define MPI_ELEMENT MPI_DOUBLE
#else
typedef float element;
#define MPI_ELEMENT MPI_FLOAT
#endif

enum { WARM_UPS = 2, ROUNDS_MAX = 1000, CALLS_MAX = 64, ROOT = 0, LATE_RANK = 4 };

/* `mine` is the contribution of `count` elements, `result` is where the result goes. A call that has no request blocks. */
static void reduce(element *mine, element *result, int count, MPI_Comm group, MPI_Request *request)
{
    if (request)
        MPI_Ireduce(mine, result, count, MPI_ELEMENT, MPI_SUM, ROOT, group, request);
    else
        MPI_Reduce(mine, result, count, MPI_ELEMENT, MPI_SUM, ROOT, group);
}

static void allreduce(element *mine, element *result, int count, MPI_Comm group, MPI_Request *request)
{
    if (request)
        MPI_Iallreduce(mine, result, count, MPI_ELEMENT, MPI_SUM, group, request);
    else
        MPI_Allreduce(mine, result, count, MPI_ELEMENT, MPI_SUM, group);
}

static void broadcast(element *mine, element *result, int count, MPI_Comm group, MPI_Request *request)
{
    int rank;
    MPI_Comm_rank(group, &rank);
    element *vector = rank == ROOT ? mine : result;
    if (request)
        MPI_Ibcast(vector, count, MPI_ELEMENT, ROOT, group, request);
    else
        MPI_Bcast(vector, count, MPI_ELEMENT, ROOT, group);
}

/* Who has a result in `result`. */
enum receivers { ROOT_ONLY, ALL, ALL_BUT_ROOT };

static const struct collective {
    const char *name;
    void (*call)(element *mine, element *result, int count, MPI_Comm group, MPI_Request *request);
    enum receivers receivers;
    int is_sum;
} COLLECTIVES[] = {
    {"reduce", reduce, ROOT_ONLY, 1},
    {"allreduce", allreduce, ALL, 1},
    {"broadcast", broadcast, ALL_BUT_ROOT, 0},
};

static const struct collective *find(const char *name)
{
    for (size_t at = 0; at < sizeof COLLECTIVES / sizeof *COLLECTIVES; at++)
        if (strcmp(COLLECTIVES[at].name, name) == 0)
            return &COLLECTIVES[at];
    return NULL;
}

int main(int argc, char **argv)
{
    int rank, size, rounds = 1, late_ms = 0, compute_ms = 0, calls = 1, is_at_once = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (; argc > 2 && strncmp(argv[1], "--", 2) == 0; argc -= 2, argv += 2) {
        int value = atoi(argv[2]);
        if (strcmp(argv[1], "--rounds") == 0)
            rounds = value;
        else if (strcmp(argv[1], "--late-ms") == 0)
            late_ms = value;
        else if (strcmp(argv[1], "--compute-ms") == 0)
            compute_ms = value;
        else {
            calls = value;
            is_at_once = strcmp(argv[1], "--at-once") == 0;
        }
    }
    int at_once = is_at_once && (calls > 1 || compute_ms > 0);
    if (rounds < 1 || rounds > ROUNDS_MAX || calls < 1 || calls > CALLS_MAX)
        MPI_Abort(MPI_COMM_WORLD, 1);
    const struct collective *named = argc > 1 ? find(argv[1]) : NULL;
    const struct collective *collective = named ? named : &COLLECTIVES[0];
    int receives = collective->receivers == ALL || (collective->receivers == ROOT_ONLY) == (rank == ROOT);
    int factor = collective->is_sum ? size * (size + 1) / 2 : ROOT + 1;
    MPI_Comm groups[CALLS_MAX];
    for (int call = 0; call < calls; call++)
        MPI_Comm_dup(MPI_COMM_WORLD, &groups[call]);
    for (int at = named ? 2 : 1; at < argc; at++) {
        long bytes = atol(argv[at]);
        int count = (int)(bytes / (long)sizeof(element));
        element *mine[CALLS_MAX], *result[CALLS_MAX];
        for (int call = 0; call < calls; call++) {
            mine[call] = malloc(bytes);
            result[call] = malloc(bytes);
            if (!mine[call] || !result[call] || bytes <= 0)
                MPI_Abort(MPI_COMM_WORLD, 1);
            for (int i = 0; i < count; i++) {
                mine[call][i] = (element)((rank + 1) * (i % 7));
                result[call][i] = -1;
            }
        }
        double elapsed[ROUNDS_MAX], longest[ROUNDS_MAX];
        for (int run = 0; run < WARM_UPS + rounds; run++) {
            MPI_Barrier(MPI_COMM_WORLD);
            double start = MPI_Wtime() + late_ms / 1e3;
            if (rank == LATE_RANK)
                usleep(late_ms * 1000);
            MPI_Request requests[CALLS_MAX];
            MPI_Status statuses[CALLS_MAX];
            for (int call = 0; call < calls; call++)
                collective->call(mine[call], result[call], count, groups[call], at_once ? &requests[call] : NULL);
            double until = MPI_Wtime() + compute_ms / 1e3;
            while (MPI_Wtime() < until)
                ;
            if (at_once)
                MPI_Waitall(calls, requests, statuses);
            if (run >= WARM_UPS)
                elapsed[run - WARM_UPS] = receives ? MPI_Wtime() - start : 0;
        }
        for (int call = 0; call < calls; call++) {
            for (int i = 0; receives && i < count; i++) {
                if (result[call][i] != (element)(factor * (i % 7))) {
                    fprintf(stderr, "rank %d: element %d is wrong: %g\n", rank, i, result[call][i]);
                    MPI_Abort(MPI_COMM_WORLD, 1);
                }
            }
            free(mine[call]);
            free(result[call]);
        }
        MPI_Reduce(elapsed, longest, rounds, MPI_DOUBLE, MPI_MAX, ROOT, MPI_COMM_WORLD);
        for (int round = 0; rank == ROOT && round < rounds; round++)
            printf("%ld %.0f\n", bytes, longest[round] * 1e9);
    }
#ifdef MPICH
    /* MPI_Finalize of MPICH 4.0.2 over UCX hangs when it closes connections that peers no longer look at. Without it
     * the launcher needs -disable-auto-cleanup. */
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    _exit(0);
#endif
    MPI_Finalize();
    return 0;
}
