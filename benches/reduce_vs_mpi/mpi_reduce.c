/* Times MPI_Reduce of floats to rank 0, once for each size in bytes on the command line, and prints
 * "SIZE NANOSECONDS" for each. The result is verified. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { WARM_UPS = 2 };

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int at = 1; at < argc; at++) {
        long bytes = atol(argv[at]);
        int count = (int)(bytes / (long)sizeof(float));
        float *mine = malloc(bytes), *result = malloc(bytes);
        if (!mine || !result)
            MPI_Abort(MPI_COMM_WORLD, 1);
        for (int i = 0; i < count; i++) {
            mine[i] = (float)((rank + 1) * (i % 7));
            result[i] = -1;
        }
        double elapsed = 0;
        for (int run = 0; run <= WARM_UPS; run++) {
            MPI_Barrier(MPI_COMM_WORLD);
            double start = MPI_Wtime();
            MPI_Reduce(mine, result, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
            elapsed = MPI_Wtime() - start;
        }
        if (rank == 0) {
            for (int i = 0; i < count; i++) {
                if (result[i] != (float)(size * (size + 1) / 2 * (i % 7))) {
                    fprintf(stderr, "element %d is wrong: %g\n", i, result[i]);
                    MPI_Abort(MPI_COMM_WORLD, 1);
                }
            }
            printf("%ld %.0f\n", bytes, elapsed * 1e9);
        }
        free(mine);
        free(result);
    }
    MPI_Finalize();
    return 0;
}
