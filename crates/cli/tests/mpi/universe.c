/* How many processes MPI says there is room for; -1 if it does not say. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int *size, is_known;

    MPI_Init(&argc, &argv);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &size, &is_known);
    printf("%d\n", is_known ? *size : -1);
    MPI_Finalize();
    return 0;
}
