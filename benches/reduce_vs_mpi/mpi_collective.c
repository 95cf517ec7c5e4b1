/* Times a collective of MPI on floats: `mpi_collective [reduce|allreduce|broadcast] SIZE...` calls it for each size in
 * bytes and prints "SIZE NANOSECONDS" for each. The root of a rooted one is rank 0. The time is that of the rank that
 * gets its result last, from its own call just after a barrier and two calls that are not counted. The result is verified on every
 * rank that gets one. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WARM_UPS = 2, ROOT = 0 };

/* `mine` is the contribution of `count` floats, `result` is where the result goes. */
static void reduce(float *mine, float *result, int count)
{
    MPI_Reduce(mine, result, count, MPI_FLOAT, MPI_SUM, ROOT, MPI_COMM_WORLD);
}

static void allreduce(float *mine, float *result, int count)
{
    MPI_Allreduce(mine, result, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void broadcast(float *mine, float *result, int count)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Bcast(rank == ROOT ? mine : result, count, MPI_FLOAT, ROOT, MPI_COMM_WORLD);
}

/* Who has a result in `result`. */
enum receivers { ROOT_ONLY, ALL, ALL_BUT_ROOT };

static const struct collective {
    const char *name;
    void (*call)(float *mine, float *result, int count);
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
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const struct collective *named = argc > 1 ? find(argv[1]) : NULL;
    const struct collective *collective = named ? named : &COLLECTIVES[0];
    int receives = collective->receivers == ALL || (collective->receivers == ROOT_ONLY) == (rank == ROOT);
    int factor = collective->is_sum ? size * (size + 1) / 2 : ROOT + 1;
    for (int at = named ? 2 : 1; at < argc; at++) {
        long bytes = atol(argv[at]);
        int count = (int)(bytes / (long)sizeof(float));
        float *mine = malloc(bytes), *result = malloc(bytes);
        if (!mine || !result || bytes <= 0)
            MPI_Abort(MPI_COMM_WORLD, 1);
        for (int i = 0; i < count; i++) {
            mine[i] = (float)((rank + 1) * (i % 7));
            result[i] = -1;
        }
        double elapsed = 0;
        for (int run = 0; run <= WARM_UPS; run++) {
            MPI_Barrier(MPI_COMM_WORLD);
            double start = MPI_Wtime();
            collective->call(mine, result, count);
            elapsed = receives ? MPI_Wtime() - start : 0;
        }
        for (int i = 0; receives && i < count; i++) {
            if (result[i] != (float)(factor * (i % 7))) {
                fprintf(stderr, "rank %d: element %d is wrong: %g\n", rank, i, result[i]);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        }
        double longest;
        MPI_Reduce(&elapsed, &longest, 1, MPI_DOUBLE, MPI_MAX, ROOT, MPI_COMM_WORLD);
        if (rank == ROOT)
            printf("%ld %.0f\n", bytes, longest * 1e9);
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
