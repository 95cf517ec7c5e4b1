/* Times a collective of MPI: `mpi_collective [--rounds N] [reduce|allreduce|broadcast] SIZE...` calls it for each size
 * in bytes and prints "SIZE NANOSECONDS" for each. The root of a rooted one is rank 0. The time is that of the rank that
 * gets its result last, from its own call just after a barrier, after two calls that are not counted; the median of N
 * such times. The result is verified on every rank that gets one. Elements are floats, or doubles with -DDOUBLES. */

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

enum { WARM_UPS = 2, ROUNDS_MAX = 1000, ROOT = 0 };

/* `mine` is the contribution of `count` elements, `result` is where the result goes. */
static void reduce(element *mine, element *result, int count)
{
    MPI_Reduce(mine, result, count, MPI_ELEMENT, MPI_SUM, ROOT, MPI_COMM_WORLD);
}

static void allreduce(element *mine, element *result, int count)
{
    MPI_Allreduce(mine, result, count, MPI_ELEMENT, MPI_SUM, MPI_COMM_WORLD);
}

static void broadcast(element *mine, element *result, int count)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Bcast(rank == ROOT ? mine : result, count, MPI_ELEMENT, ROOT, MPI_COMM_WORLD);
}

/* Who has a result in `result`. */
enum receivers { ROOT_ONLY, ALL, ALL_BUT_ROOT };

static const struct collective {
    const char *name;
    void (*call)(element *mine, element *result, int count);
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

static int ascending(const void *one, const void *other)
{
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

int main(int argc, char **argv)
{
    int rank, size, rounds = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 2 && strcmp(argv[1], "--rounds") == 0) {
        rounds = atoi(argv[2]);
        argc -= 2;
        argv += 2;
    }
    if (rounds < 1 || rounds > ROUNDS_MAX)
        MPI_Abort(MPI_COMM_WORLD, 1);
    const struct collective *named = argc > 1 ? find(argv[1]) : NULL;
    const struct collective *collective = named ? named : &COLLECTIVES[0];
    int receives = collective->receivers == ALL || (collective->receivers == ROOT_ONLY) == (rank == ROOT);
    int factor = collective->is_sum ? size * (size + 1) / 2 : ROOT + 1;
    for (int at = named ? 2 : 1; at < argc; at++) {
        long bytes = atol(argv[at]);
        int count = (int)(bytes / (long)sizeof(element));
        element *mine = malloc(bytes), *result = malloc(bytes);
        if (!mine || !result || bytes <= 0)
            MPI_Abort(MPI_COMM_WORLD, 1);
        for (int i = 0; i < count; i++) {
            mine[i] = (element)((rank + 1) * (i % 7));
            result[i] = -1;
        }
        double elapsed[ROUNDS_MAX], longest[ROUNDS_MAX];
        for (int run = 0; run < WARM_UPS + rounds; run++) {
            MPI_Barrier(MPI_COMM_WORLD);
            double start = MPI_Wtime();
            collective->call(mine, result, count);
            if (run >= WARM_UPS)
                elapsed[run - WARM_UPS] = receives ? MPI_Wtime() - start : 0;
        }
        for (int i = 0; receives && i < count; i++) {
            if (result[i] != (element)(factor * (i % 7))) {
                fprintf(stderr, "rank %d: element %d is wrong: %g\n", rank, i, result[i]);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        }
        MPI_Reduce(elapsed, longest, rounds, MPI_DOUBLE, MPI_MAX, ROOT, MPI_COMM_WORLD);
        qsort(longest, rounds, sizeof *longest, ascending);
        if (rank == ROOT)
            printf("%ld %.0f\n", bytes, longest[rounds / 2] * 1e9);
        free(mine);
        free(result);
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
