/* Every rank contributes to a reduction and to an all-reduction, and says what it sees. */
#include <mpi.h>
#include <stdio.h>

enum { LENGTH = 1000 };

int main(int argc, char **argv)
{
    int rank, size;
    double mine[LENGTH], sum[LENGTH], largest;
    long product, factor;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < LENGTH; i++)
        mine[i] = rank + 0.5 * i;
    MPI_Reduce(mine, sum, LENGTH, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Allreduce(&mine[LENGTH - 1], &largest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    factor = rank + 1;
    MPI_Allreduce(&factor, &product, 1, MPI_LONG, MPI_PROD, MPI_COMM_WORLD);
    if (rank == 0)
        printf("sum %.3f to %.3f\n", sum[0], sum[LENGTH - 1]);
    printf("rank %d of %d: largest %.3f, product %ld\n", rank, size, largest, product);
    MPI_Finalize();
    return 0;
}
