/* What every MPI program does: it starts, waits for the others, adds up, and passes on what is too large for one message. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE (4 << 20)

int main(int argc, char **argv)
{
    int rank, size, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Barrier(MPI_COMM_WORLD);
    int own = rank + 1, left = (rank + size - 1) % size, right = (rank + 1) % size;
    MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    char *sent = malloc(SIZE), *got = malloc(SIZE);
    memset(sent, own, SIZE);
    MPI_Sendrecv(sent, SIZE, MPI_CHAR, right, 0, got, SIZE, MPI_CHAR, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (size_t i = 0; i < SIZE; i++)
        if (got[i] != (char)(left + 1))
            MPI_Abort(MPI_COMM_WORLD, 3);
    printf("rank %d of %d: sum %d\n", rank, size, sum);
    MPI_Finalize();
    return 0;
}
